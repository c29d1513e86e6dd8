// SPDX-License-Identifier: MIT OR GPL-2.0
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include "processes.h"

#include <linux/err.h>
#include <linux/overflow.h>
#include <linux/printk.h>
#include <linux/seq_file.h>
#include <linux/slab.h>

/*
 * Per budget: opening a file and reading /proc search all of them. The cards of a machine have no room for more
 * contexts.
 */
#define PROCESSES_MAX 4096

struct process {
	struct list_head link;
	struct budget *budget;
	pid_t pid;
	u32 files;
	bool is_inconsistent; /* its sums do not match its charges: the core may still name it */
	/*
	 * By the card that the core names; the last is for CORE_ONLY_CARD. What is used was charged to the share's
	 * limit, and is uncharged there.
	 */
	struct limit_share shares[CORE_CARDS + 1];
};

static struct process *find(struct budget *budget, pid_t pid)
{
	struct process *process;

	list_for_each_entry(process, &budget->processes, link)
		if (process->pid == pid)
			return process;
	return NULL;
}

/* With the lock held. NULL: there are too many. */
static struct process *add(struct budget *budget, struct process *process, pid_t pid)
{
	if (budget->process_count == PROCESSES_MAX)
		return NULL;
	process->budget = budget;
	process->pid = pid;
	list_add_tail(&process->link, &budget->processes);
	budget->process_count++;
	return process;
}

static void remove(struct process *process)
{
	list_del(&process->link);
	process->budget->process_count--;
}

struct process *processes_add_file(struct budget *budget, pid_t pid)
{
	struct process *spare = kzalloc(sizeof(*spare), GFP_KERNEL_ACCOUNT);
	struct process *process;

	if (!spare) {
		budgets_put(budget);
		return ERR_PTR(-ENOMEM);
	}
	mutex_lock(&budget->lock);
	process = find(budget, pid);
	if (!process)
		process = add(budget, spare, pid);
	if (process) {
		process->files++;
		budget->file_count++;
	}
	mutex_unlock(&budget->lock);
	if (process != spare) {
		kfree(spare);
		budgets_put(budget);
	}
	return process ? process : ERR_PTR(-EMFILE);
}

/* Takes a reference: what happens under the lock may free the process, and drop the last reference with it. */
static struct budget *lock(struct process *process)
{
	struct budget *budget = process->budget;

	budgets_get(budget);
	mutex_lock(&budget->lock);
	return budget;
}

static void unlock(struct budget *budget)
{
	mutex_unlock(&budget->lock);
	budgets_put(budget);
}

static bool is_needed(const struct process *process)
{
	u32 i;

	if (process->files || process->is_inconsistent)
		return true;
	for (i = 0; i <= CORE_CARDS; i++)
		if (process->shares[i].used_bytes)
			return true;
	return false;
}

/* Releases the lock, and the process if nothing of it is left. */
static void unlock_and_free_unused(struct budget *budget, struct process *process)
{
	bool is_gone = !is_needed(process);
	u32 i;

	if (is_gone) {
		for (i = 0; i <= CORE_CARDS; i++)
			if (process->shares[i].limit)
				limit_leave(&process->shares[i]);
		remove(process);
	}
	unlock(budget);
	if (is_gone) {
		kfree(process);
		budgets_put(budget);
	}
}

void processes_drop_file(struct process *process)
{
	struct budget *budget = lock(process);

	process->files--;
	budget->file_count--;
	unlock_and_free_unused(budget, process);
}

static struct limit *find_limit(struct budget *budget, u32 card)
{
	struct card_budget *found = NULL;
	u32 i;

	if (card < CORE_CARDS)
		return budget->card_budgets[card].was_named ? &budget->card_budgets[card].limit : NULL;
	for (i = 0; i < CORE_CARDS; i++) {
		if (!budget->card_budgets[i].is_named)
			continue;
		if (found)
			return NULL;
		found = &budget->card_budgets[i];
	}
	return found ? &found->limit : NULL;
}

static struct limit_share *get_share(struct process *process, u32 card)
{
	return &process->shares[min_t(u32, card, CORE_CARDS)];
}

/* The process's share of the card's present limit; while it uses memory, of the limit to which that was charged. */
static struct limit_share *find_share(struct process *process, u32 card)
{
	struct limit_share *share = get_share(process, card);
	struct limit *limit = find_limit(process->budget, card);

	if (share->used_bytes)
		return share;
	if (share->limit == limit)
		return limit ? share : NULL;
	if (share->limit)
		limit_leave(share);
	share->limit = NULL;
	if (!limit)
		return NULL;
	limit_join(limit, share, process->pid);
	return share;
}

bool processes_try_charge(struct process *process, u32 card, u64 bytes)
{
	struct budget *budget = lock(process);
	struct limit_share *share = find_share(process, card);
	bool is_charged = share && limit_try_charge(share, bytes);

	unlock(budget);
	return is_charged;
}

/*
 * The core rejects what could make the sums wrong. Should they be wrong all the same, the process stays: a leak is
 * better than a charge whose owner has been freed.
 */
static void mark_inconsistent(struct process *process)
{
	if (!process->is_inconsistent)
		pr_warn_ratelimited("%s: the sums of process %d do not match its charges\n",
				    process->budget->name, process->pid);
	process->is_inconsistent = true;
}

void processes_settle_charge(struct process *process, u32 card, u64 more_bytes)
{
	struct budget *budget = lock(process);
	struct limit_share *share = get_share(process, card);

	if (share->limit && more_bytes <= U64_MAX - share->limit->used_bytes)
		limit_settle_charge(share, more_bytes);
	else
		mark_inconsistent(process);
	unlock(budget);
}

void processes_uncharge(struct process *process, u32 card, u64 bytes)
{
	struct budget *budget = lock(process);
	struct limit_share *share = get_share(process, card);

	if (!share->limit || bytes > share->used_bytes)
		mark_inconsistent(process);
	if (share->limit)
		limit_uncharge(share, bytes);
	unlock_and_free_unused(budget, process);
}

bool processes_usage(struct process *process, u32 card, u64 *limit, u64 *used)
{
	struct budget *budget = lock(process);
	struct limit_share *share = find_share(process, card);

	if (share) {
		*limit = share->limit->limit_bytes;
		*used = share->limit->used_bytes;
	}
	unlock(budget);
	return share;
}

void processes_end(struct budget *budget)
{
	struct process *process, *next;

	list_for_each_entry_safe(process, next, &budget->processes, link) {
		remove(process);
		kfree(process);
		budgets_put(budget);
	}
}

static u64 used_of(const struct process *process, const struct limit *limit)
{
	u64 used = 0;
	u32 i;

	for (i = 0; i <= CORE_CARDS; i++)
		if (process->shares[i].limit == limit)
			used += process->shares[i].used_bytes;
	return used;
}

void processes_show(struct seq_file *to, const struct card_budget *card_budget, const char *before,
		    const char *between)
{
	struct process *process;

	list_for_each_entry(process, &card_budget->budget->processes, link) {
		u64 used = used_of(process, &card_budget->limit);

		if (used)
			seq_printf(to, "%s%d%s%llu\n", before, process->pid, between, used);
	}
}
