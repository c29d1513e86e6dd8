/* SPDX-License-Identifier: MIT OR GPL-2.0 */
/*
 * Which budget a task belongs to: by its cgroup (v2) or the nearest of its ancestors that has a budget, else by its
 * pid namespace or the nearest of its ancestors. A budget that `deny` made does not apply to tasks with CAP_SYS_ADMIN
 * in the initial user namespace. Looked up under RCU, so usable in atomic context.
 */
#ifndef OWNERS_H
#define OWNERS_H

#include <linux/types.h>

struct budget;
struct pid_namespace;

/* One of the two is set. Cgroup ids are never reused; namespace numbers are, so the namespace itself is held. */
struct owner {
	u64 cgroup;
	struct pid_namespace *pidns;
};

/* The namespace of a process, by its number in the initial one, with a reference; -ESRCH. */
int owners_from_pid(pid_t pid, struct owner *owner);
void owners_release(const struct owner *owner);
bool owners_are_equal(const struct owner *one, const struct owner *other);
/* Does it include the current task, or all tasks? Such an owner would lock out the task that sets it. */
bool owners_include_current(const struct owner *owner);

/* The owner's budget, or NULL. Under the commands' lock, so that it stays valid. */
struct budget *owners_find_budget(const struct owner *owner);
/*
 * From now on tasks of `owner` belong to the budget, which takes over the reference on the namespace. -EEXIST: they
 * belong to another. `is_deny`: `deny` made the budget.
 */
struct owner_entry *owners_insert(const struct owner *owner, struct budget *budget, bool is_deny);
void owners_remove(struct owner_entry *entry);
const struct owner *owners_key(const struct owner_entry *entry);

/* The current task's budget, under RCU: it may be about to be freed. NULL: the task is not managed. */
struct budget *owners_find_current(void);
bool owners_manage_current(void);

#endif
