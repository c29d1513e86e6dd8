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

	struct core core; /* one of its own, so no call finds another budget's objects */
	struct core_cards cards; /* which device is which card, as its files have learned it */
	struct mutex core_lock; /* taken by the core's ops; the innermost */

	struct mutex lock; /* of all that follows */
	u64 cgroup; /* /proc shows this, or the number of a pid namespace */
	u32 pidns_number;
	u32 weight;
	bool is_removed;
	bool is_deny; /* made by `deny`; read without the lock */
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

/* Under the commands' lock: the budget of that name that is not removed, or NULL. */
struct budget *budgets_find(const char *name);
/* Under the commands' lock: how many have a limit on that card; those that `deny` made do not count. */
unsigned int budgets_count_on_card(u32 card);
/* How many are not removed. */
u32 budgets_count(void);
/* Is there one that `deny` made? */
bool budgets_deny_unknown(void);

/*
 * Under the commands' lock: a new one, empty and without an owner, which no task finds until budgets_change; or
 * ERR_PTR. budgets_put frees it.
 */
struct budget *budgets_create(const char *name, const struct core_ops *ops, const char *driver_version);
/*
 * Another driver may have been loaded, and no file is being opened: budgets without files forget what they learned
 * from the old one. Open files pin their driver, so for the others it is still the same.
 */
void budgets_reset_idle(const char *driver_version);
/*
 * Under the commands' lock: owner, limits and weight become those of the request; what is used stays. -EEXIST:
 * another has that owner. On success the budget takes over the request's namespace.
 */
int budgets_change(struct budget *budget, struct budget_request *request);
/*
 * Under the commands' lock: from now on no file is bound to it, and its name is free. Its folders must have been
 * removed.
 */
void budgets_remove(struct budget *budget);

/* The current task's budget, with a reference; NULL: the task is not managed. */
struct budget *budgets_get_current(void);

/*
 * Something other than its files holds a charge of its core: that takes a reference, and keeps the core as it is
 * while no file is open. Both are called without its lock.
 */
void budgets_add_hold(struct budget *budget);
void budgets_drop_hold(struct budget *budget);

/* Takes another reference; the caller has one. */
void budgets_get(struct budget *budget);
/* Not under its lock. */
void budgets_put(struct budget *budget);
/* The budget with the smallest id above this, even a removed one, with a reference; or NULL. */
struct budget *budgets_next(u32 id);

/* The minor of its card. */
static inline u32 card_budget_number(const struct card_budget *card_budget)
{
	return (u32)(card_budget - card_budget->budget->card_budgets);
}

#endif
