/* SPDX-License-Identifier: MIT OR GPL-2.0 */
/*
 * Whose a task is: by its cgroup (v2) or the nearest of its ancestors that has an instance, else by its pid namespace
 * or the nearest of its ancestors. Looked up under RCU, so also where nobody may sleep.
 */
#ifndef IDENTITIES_H
#define IDENTITIES_H

#include <linux/types.h>

struct instance;
struct pid_namespace;

/* One of both. Ids of cgroups are never used again; numbers of namespaces are, so the namespace itself is held. */
struct identity {
	u64 cgroup;
	struct pid_namespace *pidns;
};

/* The namespace of a process, by its number in the initial one, with a reference; -ESRCH. */
int identities_of_process(pid_t pid, struct identity *identity);
void identities_release(const struct identity *identity);
bool identities_are_equal(const struct identity *one, const struct identity *other);
/* Is the current task, or everybody, in it? Such an identity would lock out who gives it. */
bool identities_have_current(const struct identity *identity);

/* Whose it is; NULL: nobody's. Under the commands' lock, which keeps it so. */
struct instance *identities_holder(const struct identity *identity);
/*
 * From now on tasks of `identity` are the instance's. -EEXIST: they are another's. The reference on the namespace goes
 * over.
 */
struct identity_entry *identities_insert(const struct identity *identity, struct instance *instance);
void identities_remove(struct identity_entry *entry);
const struct identity *identities_key(const struct identity_entry *entry);

/* The current task's instance, with a reference; NULL: it is nobody's. */
struct instance *identities_current(void);
bool identities_manage_current(void);

#endif
