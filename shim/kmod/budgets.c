// SPDX-License-Identifier: MIT OR GPL-2.0
#include "budgets.h"

#include <linux/err.h>
#include <linux/pid_namespace.h>
#include <linux/slab.h>
#include <linux/spinlock.h>
#include <linux/string.h>

#include "copies.h"
#include "owners.h"

static LIST_HEAD(all); /* by id: each new one is the last */
static DEFINE_SPINLOCK(all_lock);
static u32 last_id; /* under the commands' lock */

struct budget *budgets_find(const char *name)
{
	struct budget *budget, *found = NULL;

	spin_lock(&all_lock);
	list_for_each_entry(budget, &all, link)
		if (budget->owner && !strcmp(budget->name, name))
			found = budget;
	spin_unlock(&all_lock);
	return found;
}

unsigned int budgets_count_on_card(u32 card)
{
	struct budget *budget;
	unsigned int count = 0;

	spin_lock(&all_lock);
	list_for_each_entry(budget, &all, link)
		count += budget->owner && !budget->is_deny && budget->card_budgets[card].is_named;
	spin_unlock(&all_lock);
	return count;
}

u32 budgets_count(void)
{
	struct budget *budget;
	u32 count = 0;

	spin_lock(&all_lock);
	list_for_each_entry(budget, &all, link)
		count += !READ_ONCE(budget->is_removed);
	spin_unlock(&all_lock);
	return count;
}

bool budgets_deny_unknown(void)
{
	struct budget *budget;
	bool is_found = false;

	spin_lock(&all_lock);
	list_for_each_entry(budget, &all, link)
		is_found |= budget->owner && budget->is_deny;
	spin_unlock(&all_lock);
	return is_found;
}

struct budget *budgets_create(const char *name, const struct core_ops *ops, const char *driver_version)
{
	struct budget *budget = kzalloc(sizeof(*budget), GFP_KERNEL);
	int error;
	u32 card;

	if (!budget)
		return ERR_PTR(-ENOMEM);
	error = copies_get();
	if (error) {
		kfree(budget);
		return ERR_PTR(error);
	}
	refcount_set(&budget->references, 1);
	mutex_init(&budget->core_lock);
	mutex_init(&budget->lock);
	INIT_LIST_HEAD(&budget->link);
	INIT_LIST_HEAD(&budget->processes);
	budget->id = ++last_id;
	strscpy(budget->name, name, sizeof(budget->name));
	core_begin(&budget->core, ops, budget, driver_version);
	for (card = 0; card < CORE_CARDS; card++)
		budget->card_budgets[card].budget = budget;
	return budget;
}

static bool is_in_use(struct budget *budget)
{
	bool has_some;

	mutex_lock(&budget->lock);
	has_some = budget->file_count || budget->hold_count;
	mutex_unlock(&budget->lock);
	return has_some;
}

static void reset(struct budget *budget, const char *driver_version)
{
	const struct core_ops *ops = budget->core.ops;

	core_end(&budget->core);
	memset(&budget->core, 0, sizeof(budget->core));
	memset(&budget->cards, 0, sizeof(budget->cards));
	core_begin(&budget->core, ops, budget, driver_version);
}

void budgets_reset_idle(const char *driver_version)
{
	struct budget *budget;
	u32 id = 0;

	while ((budget = budgets_next(id))) {
		id = budget->id;
		if (!is_in_use(budget))
			reset(budget, driver_version);
		budgets_put(budget);
	}
}

static void set_card_budgets(struct budget *budget, const struct budget_request *request)
{
	u32 card;

	for (card = 0; card < CORE_CARDS; card++) {
		struct card_budget *card_budget = &budget->card_budgets[card];

		card_budget->is_named = request->cards >> card & 1;
		card_budget->was_named |= card_budget->is_named;
		limit_resize(&card_budget->limit, card_budget->is_named ? request->bytes[card] : 0);
	}
}

/* The new owner is entered before the old one is removed, so that no task of either is unmanaged in between. */
static int set_owner(struct budget *budget, const struct owner *owner)
{
	struct owner_entry *old = budget->owner, *entry;

	if (old && owners_are_equal(owners_key(old), owner)) {
		owners_release(owner);
		return 0;
	}
	entry = owners_insert(owner, budget, budget->is_deny);
	if (IS_ERR(entry))
		return PTR_ERR(entry);
	budget->owner = entry;
	if (old)
		owners_remove(old);
	return 0;
}

int budgets_change(struct budget *budget, struct budget_request *request)
{
	bool is_new = !budget->owner;
	int error;

	/*
	 * Its limits are set before the first task can find it, and what /proc shows before it can be read.
	 */
	mutex_lock(&budget->lock);
	if (is_new)
		budget->is_deny = request->is_deny;
	error = set_owner(budget, &request->owner);
	if (!error) {
		set_card_budgets(budget, request);
		budget->weight = request->weight;
		budget->cgroup = request->owner.cgroup;
		budget->pidns_number = request->owner.pidns ? request->owner.pidns->ns.inum : 0;
	}
	mutex_unlock(&budget->lock);
	if (error || !is_new)
		return error;
	spin_lock(&all_lock);
	list_add_tail(&budget->link, &all);
	spin_unlock(&all_lock);
	return 0;
}

void budgets_remove(struct budget *budget)
{
	owners_remove(budget->owner);
	mutex_lock(&budget->lock);
	budget->is_removed = true;
	mutex_unlock(&budget->lock);
	spin_lock(&all_lock);
	budget->owner = NULL;
	spin_unlock(&all_lock);
	budgets_put(budget);
}

void budgets_add_hold(struct budget *budget)
{
	budgets_get(budget);
	mutex_lock(&budget->lock);
	budget->hold_count++;
	mutex_unlock(&budget->lock);
}

void budgets_drop_hold(struct budget *budget)
{
	mutex_lock(&budget->lock);
	budget->hold_count--;
	mutex_unlock(&budget->lock);
	budgets_put(budget);
}

struct budget *budgets_get_current(void)
{
	struct budget *budget;

	rcu_read_lock();
	budget = owners_find_current();
	if (budget && !refcount_inc_not_zero(&budget->references))
		budget = NULL;
	rcu_read_unlock();
	return budget;
}

void budgets_get(struct budget *budget)
{
	refcount_inc(&budget->references);
}

void budgets_put(struct budget *budget)
{
	bool is_last;

	if (refcount_dec_not_one(&budget->references))
		return;
	/* While it is in the list, other tasks may find it and take a reference. */
	spin_lock(&all_lock);
	is_last = refcount_dec_and_test(&budget->references);
	if (is_last)
		list_del(&budget->link);
	spin_unlock(&all_lock);
	if (!is_last)
		return;
	core_end(&budget->core);
	kfree_rcu(budget, rcu);
	copies_put();
}

struct budget *budgets_next(u32 id)
{
	struct budget *budget, *found = NULL;

	spin_lock(&all_lock);
	list_for_each_entry(budget, &all, link) {
		if (budget->id <= id)
			continue;
		budgets_get(budget);
		found = budget;
		break;
	}
	spin_unlock(&all_lock);
	return found;
}
