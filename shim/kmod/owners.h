/* SPDX-License-Identifier: MIT OR GPL-2.0 */
/*
 * Whose a task is: by its cgroup (v2) or the nearest of its ancestors that has a budget, else by its pid namespace
 * or the nearest of its ancestors. Looked up under RCU, so also where nobody may sleep.
 */
#ifndef OWNERS_H
#define OWNERS_H

#include <linux/types.h>

struct budget;
struct pid_namespace;

/* One of both. Ids of cgroups are never used again; numbers of namespaces are, so the namespace itself is held. */
struct owner {
	u64 cgroup;
	struct pid_namespace *pidns;
};

/* The namespace of a process, by its number in the initial one, with a reference; -ESRCH. */
int owners_from_pid(pid_t pid, struct owner *owner);
void owners_release(const struct owner *owner);
bool owners_are_equal(const struct owner *one, const struct owner *other);
/* Is the current task, or everybody, in it? Such an owner would lock out who gives it. */
bool owners_include_current(const struct owner *owner);

/* Whose it is; NULL: nobody's. Under the commands' lock, which keeps it so. */
struct budget *owners_find_budget(const struct owner *owner);
/*
 * From now on tasks of `owner` are the budget's. -EEXIST: they are another's. The reference on the namespace goes
 * over.
 */
struct owner_entry *owners_insert(const struct owner *owner, struct budget *budget);
void owners_remove(struct owner_entry *entry);
const struct owner *owners_key(const struct owner_entry *entry);

/* The current task's budget, with a reference; NULL: it is nobody's. */
struct budget *owners_current_budget(void);
bool owners_manage_current(void);

#endif
