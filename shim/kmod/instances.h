/* SPDX-License-Identifier: MIT OR GPL-2.0 */
/*
 * The instances: a named budget on one or more cards, for all tasks of one identity. It lives from `add` until it has
 * been removed, its last file has been released and its last charge has been given back.
 *
 * Locks, outer first: the commands' (who changes what is there), an instance's own, the list's. The core's stands
 * alone: nothing is locked under it, and it under nothing. Nobody who closes a file or reads an instance's nodes takes
 * the commands' lock.
 */
#ifndef INSTANCES_H
#define INSTANCES_H

#include <linux/list.h>
#include <linux/mutex.h>
#include <linux/rcupdate.h>
#include <linux/refcount.h>
#include <linux/types.h>

#include "../core/core.h"
#include "../core/limit.h"
#include "identities.h"

#define INSTANCE_NAME_MOST 127
#define INSTANCE_WEIGHT_MOST 16

struct instance;
struct proc_dir_entry;

/* What an instance may use of one card, by the card's minor. */
struct budget {
	struct instance *instance;
	bool is_named; /* by the last `add` */
	bool was_named; /* by any */
	struct limit limit;
	struct proc_dir_entry *folder; /* under the commands' lock */
};

struct instance {
	struct list_head link;
	refcount_t references; /* its name, and its members */
	struct rcu_head rcu;
	u32 id;
	char name[INSTANCE_NAME_MOST + 1];
	struct identity_entry *identity; /* under the commands' lock; NULL: removed */

	struct core core; /* nothing of one instance is found by what another's callers write */
	struct core_cards cards; /* what its files have learned, the core's too */
	struct mutex tables; /* the core's lock, the innermost */

	struct mutex lock; /* of all that follows */
	u64 cgroup; /* what it is shown by: this, or the number of a pid namespace */
	u32 pidns_number;
	u32 weight;
	bool is_removed;
	struct list_head members;
	u32 member_count;
	struct budget budgets[CORE_CARDS];
};

/* What `add` says. */
struct instance_request {
	char name[INSTANCE_NAME_MOST + 1];
	struct identity identity;
	u32 cards; /* one bit each */
	u64 bytes[CORE_CARDS];
	u32 weight;
};

/* Under the commands' lock: by name, of those that are not removed; NULL. */
struct instance *instances_named(const char *name);
/* Under the commands' lock: how many have a budget on that card. */
unsigned int instances_on_card(u32 card);
/* Those with a name. */
u32 instances_count(void);

/*
 * Under the commands' lock. A new one, with nothing in it and no identity yet, not found by anybody; ERR_PTR. It
 * becomes known by instances_change, or goes by instances_put.
 */
struct instance *instances_new(const char *name, const char *driver_version);
/*
 * Another driver may have come, and no file is opened now: those without files forget what they learned of the old one.
 * The others' files hold theirs, so for them it is the same.
 */
void instances_begin_anew(const char *driver_version);
/*
 * Under the commands' lock: identity, limits and weight become those of the request; what is used stays. -EEXIST:
 * another has that identity. The request's namespace goes over to the instance unless that fails.
 */
int instances_change(struct instance *instance, struct instance_request *request);
/* Under the commands' lock: no new file is bound to it, and the name is free. Its folders are gone before. */
void instances_remove(struct instance *instance);

/* A reference; false: it is about to go. Only of one found under RCU. */
bool instances_try_get(struct instance *instance);
/* One more, for who has one. */
void instances_get(struct instance *instance);
/* Not under its lock. */
void instances_put(struct instance *instance);
/* The one with the smallest id above that one, removed ones too, with a reference; NULL. */
struct instance *instances_after(u32 id);

/* The card of a budget. */
static inline u32 budget_card(const struct budget *budget)
{
	return (u32)(budget - budget->instance->budgets);
}

#endif
