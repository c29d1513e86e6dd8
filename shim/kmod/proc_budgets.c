// SPDX-License-Identifier: MIT OR GPL-2.0
#include "proc_budgets.h"

#include <linux/err.h>
#include <linux/kernel.h>
#include <linux/proc_fs.h>
#include <linux/seq_file.h>

#include "access.h"
#include "budgets.h"
#include "proc_file.h"
#include "processes.h"

#define BUDGETS_PER_CARD_MAX 25
#define GROUPS_MAX 2048 /* as many as a card has for one engine */
#define POLICY_NATIVE 5

struct card {
	struct proc_dir_entry *folder;
	u64 max_budgets, max_groups, policy;
};

static struct proc_dir_entry *root;
static struct card cards[CORE_CARDS];

void proc_budgets_begin(struct proc_dir_entry *folder)
{
	u32 i;

	root = folder;
	for (i = 0; i < CORE_CARDS; i++)
		cards[i] = (struct card){ .max_budgets = 16, .max_groups = 64, .policy = POLICY_NATIVE };
}

unsigned int proc_budgets_max_on_card(u32 card)
{
	return READ_ONCE(cards[card].max_budgets);
}

static int show_max_budgets(struct seq_file *to, void *unused)
{
	struct card *card = to->private;

	seq_printf(to, "%llu\n", READ_ONCE(card->max_budgets));
	return 0;
}

static int set_max_budgets(void *of, u64 number)
{
	struct card *card = of;

	if (!number || number > BUDGETS_PER_CARD_MAX)
		return -EINVAL;
	WRITE_ONCE(card->max_budgets, number);
	return 0;
}

u32 proc_budgets_max_groups(struct budget *budget)
{
	u32 card, most = 0;

	mutex_lock(&budget->lock);
	for (card = 0; card < CORE_CARDS; card++)
		if (budget->card_budgets[card].is_named && !budget->is_deny)
			most += READ_ONCE(cards[card].max_groups);
	mutex_unlock(&budget->lock);
	return most;
}

static int show_max_groups(struct seq_file *to, void *unused)
{
	struct card *card = to->private;

	seq_printf(to, "%llu\n", READ_ONCE(card->max_groups));
	return 0;
}

static int set_max_groups(void *of, u64 number)
{
	struct card *card = of;

	if (!number || number > GROUPS_MAX)
		return -EINVAL;
	WRITE_ONCE(card->max_groups, number);
	return 0;
}

static int show_policy(struct seq_file *to, void *unused)
{
	struct card *card = to->private;

	seq_printf(to, "%llu\n", card->policy);
	return 0;
}

/* The others would change how the card is scheduled, which has not been shown to work. */
static int set_policy(void *of, u64 number)
{
	if (number == POLICY_NATIVE)
		return 0;
	return number < POLICY_NATIVE ? -EOPNOTSUPP : -EINVAL;
}

static int show_id(struct seq_file *to, void *unused)
{
	struct card_budget *card_budget = to->private;

	seq_printf(to, "%u\n", card_budget->budget->id);
	return 0;
}

static int show_memsize(struct seq_file *to, void *unused)
{
	struct card_budget *card_budget = to->private;

	mutex_lock(&card_budget->budget->lock);
	seq_printf(to, "%llu\n", card_budget->limit.limit_bytes);
	mutex_unlock(&card_budget->budget->lock);
	return 0;
}

static int set_memsize(void *of, u64 bytes)
{
	struct card_budget *card_budget = of;
	bool is_named;

	mutex_lock(&card_budget->budget->lock);
	is_named = card_budget->is_named;
	if (is_named)
		limit_resize(&card_budget->limit, bytes);
	mutex_unlock(&card_budget->budget->lock);
	return is_named ? 0 : -EINVAL;
}

static int show_meminfo(struct seq_file *to, void *unused)
{
	struct card_budget *card_budget = to->private;
	const struct limit *limit = &card_budget->limit;

	mutex_lock(&card_budget->budget->lock);
	seq_printf(to, "Free: %llu\n",
		   limit->used_bytes < limit->limit_bytes ? limit->limit_bytes - limit->used_bytes : 0);
	processes_show(to, card_budget, "PID: ", " Mem: ");
	mutex_unlock(&card_budget->budget->lock);
	return 0;
}

static int may_read(void *unused)
{
	return access_check_read();
}

PROC_FILE(max_budgets, may_read, show_max_budgets, set_max_budgets);
PROC_FILE(max_groups, may_read, show_max_groups, set_max_groups);
PROC_FILE(policy, may_read, show_policy, set_policy);
PROC_FILE(id, may_read, show_id, NULL);
PROC_FILE(memsize, may_read, show_memsize, set_memsize);
PROC_FILE(meminfo, may_read, show_meminfo, NULL);

static int add_card(u32 number)
{
	struct card *card = &cards[number];
	char name[16];

	if (card->folder)
		return 0;
	snprintf(name, sizeof(name), "%u", number);
	card->folder = proc_mkdir(name, root);
	if (card->folder && proc_create_data("max_inst", 0600, card->folder, &max_budgets_ops, card) &&
	    proc_create_data("max_groups", 0600, card->folder, &max_groups_ops, card) &&
	    proc_create_data("policy", 0600, card->folder, &policy_ops, card))
		return 0;
	proc_remove(card->folder);
	card->folder = NULL;
	return -ENOMEM;
}

int proc_budgets_add_cards(u32 wanted)
{
	int error = 0;
	u32 card;

	for (card = 0; card < CORE_CARDS && !error; card++)
		if (wanted >> card & 1)
			error = add_card(card);
	return error;
}

static int add_card_budget(struct card_budget *card_budget)
{
	if (card_budget->folder)
		return 0;
	card_budget->folder = proc_mkdir(card_budget->budget->name, cards[card_budget_number(card_budget)].folder);
	if (card_budget->folder && proc_create_data("id", 0400, card_budget->folder, &id_ops, card_budget) &&
	    proc_create_data("memsize", 0600, card_budget->folder, &memsize_ops, card_budget) &&
	    proc_create_data("meminfo", 0400, card_budget->folder, &meminfo_ops, card_budget))
		return 0;
	proc_remove(card_budget->folder);
	card_budget->folder = NULL;
	return -ENOMEM;
}

int proc_budgets_add(struct budget *budget, u32 wanted)
{
	int error = proc_budgets_add_cards(wanted);
	u32 card;

	for (card = 0; card < CORE_CARDS && !error; card++)
		if (wanted >> card & 1)
			error = add_card_budget(&budget->card_budgets[card]);
	return error;
}

void proc_budgets_remove(struct budget *budget)
{
	u32 card;

	for (card = 0; card < CORE_CARDS; card++) {
		proc_remove(budget->card_budgets[card].folder);
		budget->card_budgets[card].folder = NULL;
	}
}
