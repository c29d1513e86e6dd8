// SPDX-License-Identifier: MIT OR GPL-2.0
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include "members.h"

#include <linux/err.h>
#include <linux/overflow.h>
#include <linux/printk.h>
#include <linux/seq_file.h>
#include <linux/slab.h>

/*
 * Of one instance, since all are looked through when one comes and for whoever reads: more than contexts fit on a
 * node's cards.
 */
#define MOST_MEMBERS 4096

struct member {
	struct list_head link;
	struct instance *instance;
	pid_t pid;
	u32 files;
	bool is_kept; /* its sums are not those of its charges: the core may still name it */
	/*
	 * By the card that the core said; the last is of CORE_ONLY_CARD. What is used was charged to that limit, and
	 * is uncharged there.
	 */
	struct limit_share shares[CORE_CARDS + 1];
};

static struct member *find(struct instance *instance, pid_t pid)
{
	struct member *member;

	list_for_each_entry(member, &instance->members, link)
		if (member->pid == pid)
			return member;
	return NULL;
}

/* With the lock held. NULL: they are too many. */
static struct member *add(struct instance *instance, struct member *member, pid_t pid)
{
	if (instance->member_count == MOST_MEMBERS)
		return NULL;
	member->instance = instance;
	member->pid = pid;
	list_add_tail(&member->link, &instance->members);
	instance->member_count++;
	return member;
}

static void remove(struct member *member)
{
	list_del(&member->link);
	member->instance->member_count--;
}

struct member *members_join(struct instance *instance, pid_t pid)
{
	struct member *spare = kzalloc(sizeof(*spare), GFP_KERNEL_ACCOUNT);
	struct member *member;

	if (!spare) {
		instances_put(instance);
		return ERR_PTR(-ENOMEM);
	}
	mutex_lock(&instance->lock);
	member = find(instance, pid);
	if (!member)
		member = add(instance, spare, pid);
	if (member)
		member->files++;
	mutex_unlock(&instance->lock);
	if (member != spare) {
		kfree(spare);
		instances_put(instance);
	}
	return member ? member : ERR_PTR(-EMFILE);
}

/* Whoever unlocks it may free the last that holds it: so it is held meanwhile. */
static struct instance *lock(struct member *member)
{
	struct instance *instance = member->instance;

	instances_get(instance);
	mutex_lock(&instance->lock);
	return instance;
}

static void unlock(struct instance *instance)
{
	mutex_unlock(&instance->lock);
	instances_put(instance);
}

static bool is_needed(const struct member *member)
{
	u32 i;

	if (member->files || member->is_kept)
		return true;
	for (i = 0; i <= CORE_CARDS; i++)
		if (member->shares[i].used_bytes)
			return true;
	return false;
}

/* With the lock held, which is opened. */
static void unlock_after_uncharge(struct instance *instance, struct member *member)
{
	bool is_gone = !is_needed(member);
	u32 i;

	if (is_gone) {
		for (i = 0; i <= CORE_CARDS; i++)
			if (member->shares[i].limit)
				limit_leave(&member->shares[i]);
		remove(member);
	}
	unlock(instance);
	if (is_gone) {
		kfree(member);
		instances_put(instance);
	}
}

void members_leave(struct member *member)
{
	struct instance *instance = lock(member);

	member->files--;
	unlock_after_uncharge(instance, member);
}

static struct limit *find_limit(struct instance *instance, u32 card)
{
	struct budget *found = NULL;
	u32 i;

	if (card < CORE_CARDS)
		return instance->budgets[card].was_named ? &instance->budgets[card].limit : NULL;
	for (i = 0; i < CORE_CARDS; i++) {
		if (!instance->budgets[i].is_named)
			continue;
		if (found)
			return NULL;
		found = &instance->budgets[i];
	}
	return found ? &found->limit : NULL;
}

static struct limit_share *get_share(struct member *member, u32 card)
{
	return &member->shares[min_t(u32, card, CORE_CARDS)];
}

/* Joined to the card's limit as it is now; to where it was charged, while anything of that is used. */
static struct limit_share *find_share(struct member *member, u32 card)
{
	struct limit_share *share = get_share(member, card);
	struct limit *limit = find_limit(member->instance, card);

	if (share->used_bytes)
		return share;
	if (share->limit == limit)
		return limit ? share : NULL;
	if (share->limit)
		limit_leave(share);
	share->limit = NULL;
	if (!limit)
		return NULL;
	limit_join(limit, share, member->pid);
	return share;
}

bool members_try_charge(struct member *member, u32 card, u64 bytes)
{
	struct instance *instance = lock(member);
	struct limit_share *share = find_share(member, card);
	bool is_charged = share && limit_try_charge(share, bytes);

	unlock(instance);
	return is_charged;
}

/*
 * The core disbelieves what could make sums untrue. Should they be so all the same, its member stays: too much memory
 * is better than a charge whose owner is gone.
 */
static void keep(struct member *member)
{
	if (!member->is_kept)
		pr_warn_ratelimited("%s: the sums of process %d are not those of its charges\n",
				    member->instance->name, member->pid);
	member->is_kept = true;
}

void members_force_charge(struct member *member, u32 card, u64 more_bytes)
{
	struct instance *instance = lock(member);
	struct limit_share *share = get_share(member, card);

	if (share->limit && more_bytes <= U64_MAX - share->limit->used_bytes)
		limit_force_charge(share, more_bytes);
	else
		keep(member);
	unlock(instance);
}

void members_uncharge(struct member *member, u32 card, u64 bytes)
{
	struct instance *instance = lock(member);
	struct limit_share *share = get_share(member, card);

	if (!share->limit || bytes > share->used_bytes)
		keep(member);
	if (share->limit)
		limit_uncharge(share, bytes);
	unlock_after_uncharge(instance, member);
}

bool members_usage(struct member *member, u32 card, u64 *limit, u64 *used)
{
	struct instance *instance = lock(member);
	struct limit_share *share = find_share(member, card);

	if (share) {
		*limit = share->limit->limit_bytes;
		*used = share->limit->used_bytes;
	}
	unlock(instance);
	return share;
}

void members_end(struct instance *instance)
{
	struct member *member, *next;

	list_for_each_entry_safe(member, next, &instance->members, link) {
		remove(member);
		kfree(member);
		instances_put(instance);
	}
}

u32 members_files(const struct instance *instance)
{
	struct member *member;
	u32 files = 0;

	list_for_each_entry(member, &instance->members, link)
		files += member->files;
	return files;
}

static u64 used_of(const struct member *member, const struct limit *limit)
{
	u64 used = 0;
	u32 i;

	for (i = 0; i <= CORE_CARDS; i++)
		if (member->shares[i].limit == limit)
			used += member->shares[i].used_bytes;
	return used;
}

void members_show(struct seq_file *to, const struct budget *budget, const char *before, const char *between)
{
	struct member *member;

	list_for_each_entry(member, &budget->instance->members, link) {
		u64 used = used_of(member, &budget->limit);

		if (used)
			seq_printf(to, "%s%d%s%llu\n", before, member->pid, between, used);
	}
}
