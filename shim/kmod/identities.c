// SPDX-License-Identifier: MIT OR GPL-2.0
#include "identities.h"

#include <linux/cgroup.h>
#include <linux/hashtable.h>
#include <linux/pid.h>
#include <linux/pid_namespace.h>
#include <linux/rculist.h>
#include <linux/sched.h>
#include <linux/slab.h>
#include <linux/spinlock.h>

#include "instances.h"

#define BITS 8 /* a card has room for 25 instances, a node for 32 cards */

struct identity_entry {
	struct hlist_node node;
	struct identity key;
	struct instance *instance;
	struct rcu_head rcu;
};

static DEFINE_HASHTABLE(entries, BITS);
static DEFINE_SPINLOCK(entries_lock);

int identities_of_process(pid_t number, struct identity *identity)
{
	struct pid *pid;

	*identity = (struct identity){ 0 };
	rcu_read_lock();
	pid = find_pid_ns(number, &init_pid_ns);
	if (pid && pid_task(pid, PIDTYPE_PID))
		identity->pidns = get_pid_ns(ns_of_pid(pid));
	rcu_read_unlock();
	return identity->pidns ? 0 : -ESRCH;
}

void identities_release(const struct identity *identity)
{
	if (identity->pidns)
		put_pid_ns(identity->pidns);
}

bool identities_are_equal(const struct identity *one, const struct identity *other)
{
	return one->cgroup == other->cgroup && one->pidns == other->pidns;
}

bool identities_have_current(const struct identity *identity)
{
	struct pid_namespace *pidns;
	struct cgroup *cgroup;
	bool is_in = false;

	rcu_read_lock();
	for (cgroup = task_dfl_cgroup(current); cgroup && !is_in; cgroup = cgroup_parent(cgroup))
		is_in = cgroup_id(cgroup) == identity->cgroup;
	for (pidns = task_active_pid_ns(current); pidns && !is_in; pidns = pidns->parent)
		is_in = pidns == identity->pidns;
	rcu_read_unlock();
	return is_in;
}

static u64 hash_key(const struct identity *key)
{
	return key->pidns ? (u64)(uintptr_t)key->pidns : key->cgroup;
}

static struct identity_entry *find(const struct identity *key)
{
	struct identity_entry *entry;

	hash_for_each_possible_rcu(entries, entry, node, hash_key(key), lockdep_is_held(&entries_lock))
		if (identities_are_equal(&entry->key, key))
			return entry;
	return NULL;
}

struct instance *identities_holder(const struct identity *identity)
{
	struct identity_entry *entry;
	struct instance *holder;

	rcu_read_lock();
	entry = find(identity);
	holder = entry ? entry->instance : NULL;
	rcu_read_unlock();
	return holder;
}

struct identity_entry *identities_insert(const struct identity *identity, struct instance *instance)
{
	struct identity_entry *entry = kzalloc(sizeof(*entry), GFP_KERNEL);
	bool is_taken;

	if (!entry)
		return ERR_PTR(-ENOMEM);
	entry->key = *identity;
	entry->instance = instance;
	spin_lock(&entries_lock);
	is_taken = find(identity);
	if (!is_taken)
		hash_add_rcu(entries, &entry->node, hash_key(identity));
	spin_unlock(&entries_lock);
	if (!is_taken)
		return entry;
	kfree(entry);
	return ERR_PTR(-EEXIST);
}

void identities_remove(struct identity_entry *entry)
{
	spin_lock(&entries_lock);
	hash_del_rcu(&entry->node);
	spin_unlock(&entries_lock);
	/*
	 * Those who still look at the entry compare the namespace's address, which is not used again before they have
	 * ended.
	 */
	identities_release(&entry->key);
	kfree_rcu(entry, rcu);
}

const struct identity *identities_key(const struct identity_entry *entry)
{
	return &entry->key;
}

/* Under RCU. */
static struct instance *find_current(void)
{
	struct identity_entry *entry = NULL;
	struct pid_namespace *pidns;
	struct cgroup *cgroup;

	for (cgroup = task_dfl_cgroup(current); cgroup && !entry; cgroup = cgroup_parent(cgroup))
		entry = find(&(struct identity){ .cgroup = cgroup_id(cgroup) });
	for (pidns = task_active_pid_ns(current); pidns && !entry; pidns = pidns->parent)
		entry = find(&(struct identity){ .pidns = pidns });
	return entry ? entry->instance : NULL;
}

struct instance *identities_current(void)
{
	struct instance *instance;

	rcu_read_lock();
	instance = find_current();
	if (instance && !instances_try_get(instance))
		instance = NULL;
	rcu_read_unlock();
	return instance;
}

bool identities_manage_current(void)
{
	bool is_managed;

	rcu_read_lock();
	is_managed = find_current();
	rcu_read_unlock();
	return is_managed;
}
