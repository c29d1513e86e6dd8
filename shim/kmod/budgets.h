/* SPDX-License-Identifier: MIT OR GPL-2.0 */
/*
 * The budgets, which /proc/cgpu_km calls instances: each has a name and limits on one or more cards, for all tasks of
 * one owner. It lives from `add` until it has been removed, its last file has been released and its last charge has
 * been uncharged.
 *
 * Locks, outer first: the commands' lock (for whatever changes the set of budgets), the budget's own, the list's. The
 * core's lock stands alone: nothing is locked under it, and it under nothing. Closing a file or reading a budget's
 * files of /proc never takes the commands' lock.
 */
#ifndef BUDGETS_H
#define BUDGETS_H

#include <linux/list.h>
#include <linux/mutex.h>
#include <linux/rcupdate.h>
#include <linux/refcount.h>
#include <linux/types.h>

#include "../core/core.h"
#include "../core/limit.h"
#include "owners.h"

#define BUDGET_NAME_MAX 127
#define BUDGET_WEIGHT_MAX 16

struct budget;
struct proc_dir_entry;

/* Its limit on one card, by the card's minor. */
struct card_budget {
	struct budget *budget;
	bool is_named; /* by the last `add` */
	bool was_named; /* by any */
	struct limit limit;
	struct proc_dir_entry *folder; /* under the commands' lock */
};

struct budget {
	struct list_head link;
	refcount_t references; /* of its name, and of its processes */
	struct rcu_head rcu;
	u32 id;
	char name[BUDGET_NAME_MAX + 1];
	struct owner_entry *owner; /* under the commands' lock; NULL: removed */

	struct core core; /* nothing of one budget is found by what another's callers write */
	struct core_cards cards; /* what its files have learned, the core's too */
	struct mutex core_lock; /* what the core's ops lock, the innermost */

	struct mutex lock; /* of all that follows */
	u64 cgroup; /* what it is shown by: this, or the number of a pid namespace */
	u32 pidns_number;
	u32 weight;
	bool is_removed;
	bool is_deny; /* for the unknown below its cgroup: also read without the lock */
	struct list_head processes;
	u32 process_count, file_count, hold_count;
	struct card_budget card_budgets[CORE_CARDS];
};

/* What `add` says. */
struct budget_request {
	char name[BUDGET_NAME_MAX + 1];
	struct owner owner;
	u32 cards; /* one bit each */
	u64 bytes[CORE_CARDS];
	u32 weight;
	bool is_deny;
};

/* Under the commands' lock: by name, of those that are not removed; NULL. */
struct budget *budgets_find(const char *name);
/* Under the commands' lock: how many have a budget on that card; those of `deny` do not count. */
unsigned int budgets_count_on_card(u32 card);
/* Those with a name. */
u32 budgets_count(void);
/* Is there one of `deny`? */
bool budgets_deny_unknown(void);

/*
 * Under the commands' lock: a new one, empty and without an owner, which no task finds until budgets_change; or
 * ERR_PTR. budgets_put frees it.
 */
struct budget *budgets_create(const char *name, const struct core_ops *ops, const char *driver_version);
/*
 * Another driver may have come, and no file is opened now: those without files forget what they learned of the old one.
 * The others' files hold theirs, so for them it is the same.
 */
void budgets_reset_idle(const char *driver_version);
/*
 * Under the commands' lock: owner, limits and weight become those of the request; what is used stays. -EEXIST:
 * another has that owner. The request's namespace goes over to the budget unless that fails.
 */
int budgets_change(struct budget *budget, struct budget_request *request);
/* Under the commands' lock: no new file is bound to it, and the name is free. Its folders are gone before. */
void budgets_remove(struct budget *budget);

/* A reference; false: it is about to go. Only of one found under RCU. */
static inline bool budgets_try_get(struct budget *budget)
{
	return refcount_inc_not_zero(&budget->references);
}

/*
 * A charge of its core is held by what is none of its files: with a reference, and the core stays as it is although no
 * file is open. Not under its lock, both.
 */
void budgets_add_hold(struct budget *budget);
void budgets_drop_hold(struct budget *budget);

/* One more, for a holder of one. */
void budgets_get(struct budget *budget);
/* Not under its lock. */
void budgets_put(struct budget *budget);
/* The one with the smallest id above that one, removed ones too, with a reference; NULL. */
struct budget *budgets_next(u32 id);

/* The minor of its card. */
static inline u32 card_budget_number(const struct card_budget *card_budget)
{
	return (u32)(card_budget - card_budget->budget->card_budgets);
}

#endif
