// SPDX-License-Identifier: MIT OR GPL-2.0
#include "owners.h"

#include <linux/capability.h>
#include <linux/cgroup.h>
#include <linux/hashtable.h>
#include <linux/pid.h>
#include <linux/pid_namespace.h>
#include <linux/rculist.h>
#include <linux/sched.h>
#include <linux/slab.h>
#include <linux/spinlock.h>
#include <linux/user_namespace.h>

#define BITS 8 /* a card has room for 25 budgets, a node for 32 cards */

struct owner_entry {
	struct hlist_node node;
	struct owner key;
	struct budget *budget;
	bool is_deny;
	struct rcu_head rcu;
};

static DEFINE_HASHTABLE(entries, BITS);
static DEFINE_SPINLOCK(entries_lock);

int owners_from_pid(pid_t number, struct owner *owner)
{
	struct pid *pid;

	*owner = (struct owner){ 0 };
	rcu_read_lock();
	pid = find_pid_ns(number, &init_pid_ns);
	if (pid && pid_task(pid, PIDTYPE_PID))
		owner->pidns = get_pid_ns(ns_of_pid(pid));
	rcu_read_unlock();
	return owner->pidns ? 0 : -ESRCH;
}

void owners_release(const struct owner *owner)
{
	if (owner->pidns)
		put_pid_ns(owner->pidns);
}

bool owners_are_equal(const struct owner *one, const struct owner *other)
{
	return one->cgroup == other->cgroup && one->pidns == other->pidns;
}

bool owners_include_current(const struct owner *owner)
{
	struct pid_namespace *pidns;
	struct cgroup *cgroup;
	bool is_in = false;

	rcu_read_lock();
	for (cgroup = task_dfl_cgroup(current); cgroup && !is_in; cgroup = cgroup_parent(cgroup))
		is_in = cgroup_id(cgroup) == owner->cgroup;
	for (pidns = task_active_pid_ns(current); pidns && !is_in; pidns = pidns->parent)
		is_in = pidns == owner->pidns;
	rcu_read_unlock();
	return is_in;
}

static u64 hash_key(const struct owner *key)
{
	return key->pidns ? (u64)(uintptr_t)key->pidns : key->cgroup;
}

static struct owner_entry *find(const struct owner *key)
{
	struct owner_entry *entry;

	hash_for_each_possible_rcu(entries, entry, node, hash_key(key), lockdep_is_held(&entries_lock))
		if (owners_are_equal(&entry->key, key))
			return entry;
	return NULL;
}

struct budget *owners_find_budget(const struct owner *owner)
{
	struct owner_entry *entry;
	struct budget *holder;

	rcu_read_lock();
	entry = find(owner);
	holder = entry ? entry->budget : NULL;
	rcu_read_unlock();
	return holder;
}

struct owner_entry *owners_insert(const struct owner *owner, struct budget *budget, bool is_deny)
{
	struct owner_entry *entry = kzalloc(sizeof(*entry), GFP_KERNEL);
	bool is_taken;

	if (!entry)
		return ERR_PTR(-ENOMEM);
	entry->key = *owner;
	entry->budget = budget;
	entry->is_deny = is_deny;
	spin_lock(&entries_lock);
	is_taken = find(owner);
	if (!is_taken)
		hash_add_rcu(entries, &entry->node, hash_key(owner));
	spin_unlock(&entries_lock);
	if (!is_taken)
		return entry;
	kfree(entry);
	return ERR_PTR(-EEXIST);
}

void owners_remove(struct owner_entry *entry)
{
	spin_lock(&entries_lock);
	hash_del_rcu(&entry->node);
	spin_unlock(&entries_lock);
	/*
	 * Tasks that still look at the entry compare the namespace's address, which is not reused before they are
	 * done.
	 */
	owners_release(&entry->key);
	kfree_rcu(entry, rcu);
}

const struct owner *owners_key(const struct owner_entry *entry)
{
	return &entry->key;
}

struct budget *owners_find_current(void)
{
	struct owner_entry *entry = NULL;
	struct pid_namespace *pidns;
	struct cgroup *cgroup;

	for (cgroup = task_dfl_cgroup(current); cgroup && !entry; cgroup = cgroup_parent(cgroup))
		entry = find(&(struct owner){ .cgroup = cgroup_id(cgroup) });
	for (pidns = task_active_pid_ns(current); pidns && !entry; pidns = pidns->parent)
		entry = find(&(struct owner){ .pidns = pidns });
	if (!entry)
		return NULL;
	/* The node's own programs are never added: `deny` spares tasks that could lift any limit anyway. */
	if (entry->is_deny && ns_capable_noaudit(&init_user_ns, CAP_SYS_ADMIN))
		return NULL;
	return entry->budget;
}

bool owners_manage_current(void)
{
	bool is_managed;

	rcu_read_lock();
	is_managed = owners_find_current();
	rcu_read_unlock();
	return is_managed;
}
