// SPDX-License-Identifier: MIT OR GPL-2.0
#include "instances.h"

#include <linux/err.h>
#include <linux/pid_namespace.h>
#include <linux/slab.h>
#include <linux/spinlock.h>
#include <linux/string.h>

#include "ops.h"
#include "members.h"

static LIST_HEAD(all); /* by id: each new one is the last */
static DEFINE_SPINLOCK(all_lock);
static u32 last_id; /* under the commands' lock */

struct instance *instances_named(const char *name)
{
	struct instance *instance, *found = NULL;

	spin_lock(&all_lock);
	list_for_each_entry(instance, &all, link)
		if (instance->identity && !strcmp(instance->name, name))
			found = instance;
	spin_unlock(&all_lock);
	return found;
}

unsigned int instances_on_card(u32 card)
{
	struct instance *instance;
	unsigned int count = 0;

	spin_lock(&all_lock);
	list_for_each_entry(instance, &all, link)
		count += instance->identity && instance->budgets[card].is_named;
	spin_unlock(&all_lock);
	return count;
}

u32 instances_count(void)
{
	struct instance *instance;
	u32 count = 0;

	spin_lock(&all_lock);
	list_for_each_entry(instance, &all, link)
		count += !READ_ONCE(instance->is_removed);
	spin_unlock(&all_lock);
	return count;
}

struct instance *instances_new(const char *name, const char *driver_version)
{
	struct instance *instance = kzalloc(sizeof(*instance), GFP_KERNEL);
	u32 card;

	if (!instance)
		return ERR_PTR(-ENOMEM);
	refcount_set(&instance->references, 1);
	mutex_init(&instance->tables);
	mutex_init(&instance->lock);
	INIT_LIST_HEAD(&instance->link);
	INIT_LIST_HEAD(&instance->members);
	instance->id = ++last_id;
	strscpy(instance->name, name, sizeof(instance->name));
	core_begin(&instance->core, &kernel_ops, instance, driver_version);
	for (card = 0; card < CORE_CARDS; card++)
		instance->budgets[card].instance = instance;
	return instance;
}

static bool has_files(struct instance *instance)
{
	u32 files;

	mutex_lock(&instance->lock);
	files = members_files(instance);
	mutex_unlock(&instance->lock);
	return files;
}

static void begin_anew(struct instance *instance, const char *driver_version)
{
	core_end(&instance->core);
	memset(&instance->core, 0, sizeof(instance->core));
	memset(&instance->cards, 0, sizeof(instance->cards));
	core_begin(&instance->core, &kernel_ops, instance, driver_version);
}

void instances_begin_anew(const char *driver_version)
{
	struct instance *instance;
	u32 id = 0;

	while ((instance = instances_after(id))) {
		id = instance->id;
		if (!has_files(instance))
			begin_anew(instance, driver_version);
		instances_put(instance);
	}
}

static void set_budgets(struct instance *instance, const struct instance_request *request)
{
	u32 card;

	for (card = 0; card < CORE_CARDS; card++) {
		struct budget *budget = &instance->budgets[card];

		budget->is_named = request->cards >> card & 1;
		budget->was_named |= budget->is_named;
		limit_resize(&budget->limit, budget->is_named ? request->bytes[card] : 0);
	}
}

/* The new identity stands before the old one goes: in between no task of either is nobody's. */
static int set_identity(struct instance *instance, const struct identity *identity)
{
	struct identity_entry *old = instance->identity, *entry;

	if (old && identities_are_equal(identities_key(old), identity)) {
		identities_release(identity);
		return 0;
	}
	entry = identities_insert(identity, instance);
	if (IS_ERR(entry))
		return PTR_ERR(entry);
	instance->identity = entry;
	if (old)
		identities_remove(old);
	return 0;
}

int instances_change(struct instance *instance, struct instance_request *request)
{
	bool is_new = !instance->identity;
	int error;

	/*
	 * What it may use is there before the first task can find it, and what it is shown by before anybody reads it.
	 */
	mutex_lock(&instance->lock);
	error = set_identity(instance, &request->identity);
	if (!error) {
		set_budgets(instance, request);
		instance->weight = request->weight;
		instance->cgroup = request->identity.cgroup;
		instance->pidns_number = request->identity.pidns ? request->identity.pidns->ns.inum : 0;
	}
	mutex_unlock(&instance->lock);
	if (error || !is_new)
		return error;
	spin_lock(&all_lock);
	list_add_tail(&instance->link, &all);
	spin_unlock(&all_lock);
	return 0;
}

void instances_remove(struct instance *instance)
{
	identities_remove(instance->identity);
	mutex_lock(&instance->lock);
	instance->is_removed = true;
	mutex_unlock(&instance->lock);
	spin_lock(&all_lock);
	instance->identity = NULL;
	spin_unlock(&all_lock);
	instances_put(instance);
}

bool instances_try_get(struct instance *instance)
{
	return refcount_inc_not_zero(&instance->references);
}

void instances_get(struct instance *instance)
{
	refcount_inc(&instance->references);
}

void instances_put(struct instance *instance)
{
	bool is_last;

	if (refcount_dec_not_one(&instance->references))
		return;
	/* Whoever finds it in the list may take another reference until it is not there any more. */
	spin_lock(&all_lock);
	is_last = refcount_dec_and_test(&instance->references);
	if (is_last)
		list_del(&instance->link);
	spin_unlock(&all_lock);
	if (!is_last)
		return;
	core_end(&instance->core);
	kfree_rcu(instance, rcu);
}

struct instance *instances_after(u32 id)
{
	struct instance *instance, *found = NULL;

	spin_lock(&all_lock);
	list_for_each_entry(instance, &all, link) {
		if (instance->id <= id)
			continue;
		instances_get(instance);
		found = instance;
		break;
	}
	spin_unlock(&all_lock);
	return found;
}
