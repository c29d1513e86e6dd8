/*
 * What this process has and what the agent granted it, by card: used <= held, and only the agent raises held.
 *
 *      try_charge   within held: at once. Beyond: HOLD used + n, and while no agent answers, asking for two minutes
 *      uncharge     lowers used; the difference is credit until the agent has heard of it, by GIVE where that can be sent
 *      usage        asks; what was last heard while the agent is away
 *
 * Two locks: `balances_lock` for a few instructions, `talk_lock` for a conversation, which may take long. An uncharge never
 * waits for a conversation: it leaves credit, which the thread that has the conversation reports afterwards.
 */
#ifndef QUOTA_H
#define QUOTA_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "connection.h"
#include "lock.h"

struct balance {
	uint32_t card;
	bool is_known; /* limit and others were heard */
	uint64_t used, held;
	uint64_t limit, others; /* used by the container's other processes */
};

struct quota {
	struct lock balances_lock, talk_lock;
	struct connection connection;
	bool is_greeted; /* HELLO was sent on this connection, and nothing got out of step since */
	_Atomic bool is_away; /* the last wait was in vain: ask once, do not wait again */
	_Atomic bool is_silent; /* it is asked, and has not answered yet */
	_Atomic bool is_unlimited; /* for the life of the process */
	uint32_t count;
	struct balance balances[PROTOCOL_CARDS];
	char driver_version[32];
};

enum quota_state { QUOTA_NO_AGENT, QUOTA_UNLIMITED, QUOTA_LIMITED };

/* Wait for the agent, which tells the driver's version. */
enum quota_state quota_meet_agent(struct quota *quota);
bool quota_try_charge(struct quota *quota, uint32_t card, uint64_t bytes);
/* For what has happened already, even above the limit. */
void quota_settle_charge(struct quota *quota, uint32_t card, uint64_t more_bytes);
void quota_uncharge(struct quota *quota, uint32_t card, uint64_t bytes);
/* How many cards this process has asked about, and at least one. */
uint32_t quota_cards(struct quota *quota);
bool quota_usage(struct quota *quota, uint32_t card, uint64_t *limit, uint64_t *used);

#endif
