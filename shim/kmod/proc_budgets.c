// SPDX-License-Identifier: MIT OR GPL-2.0
#include "proc_budgets.h"

#include <linux/err.h>
#include <linux/kernel.h>
#include <linux/proc_fs.h>
#include <linux/seq_file.h>

#include "access.h"
#include "instances.h"
#include "members.h"
#include "proc_file.h"

#define MOST_INSTANCES 25
#define POLICY_NATIVE 5

struct card {
	struct proc_dir_entry *folder;
	u64 most_instances, policy;
};

static struct proc_dir_entry *root;
static struct card cards[CORE_CARDS];

void proc_budgets_begin(struct proc_dir_entry *folder)
{
	u32 i;

	root = folder;
	for (i = 0; i < CORE_CARDS; i++)
		cards[i] = (struct card){ .most_instances = 16, .policy = POLICY_NATIVE };
}

unsigned int proc_budgets_max_on_card(u32 card)
{
	return READ_ONCE(cards[card].most_instances);
}

static int show_most_instances(struct seq_file *to, void *unused)
{
	struct card *card = to->private;

	seq_printf(to, "%llu\n", READ_ONCE(card->most_instances));
	return 0;
}

static int set_most_instances(void *of, u64 number)
{
	struct card *card = of;

	if (!number || number > MOST_INSTANCES)
		return -EINVAL;
	WRITE_ONCE(card->most_instances, number);
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
	struct budget *budget = to->private;

	seq_printf(to, "%u\n", budget->instance->id);
	return 0;
}

static int show_memsize(struct seq_file *to, void *unused)
{
	struct budget *budget = to->private;

	mutex_lock(&budget->instance->lock);
	seq_printf(to, "%llu\n", budget->limit.limit_bytes);
	mutex_unlock(&budget->instance->lock);
	return 0;
}

static int set_memsize(void *of, u64 bytes)
{
	struct budget *budget = of;
	bool is_named;

	mutex_lock(&budget->instance->lock);
	is_named = budget->is_named;
	if (is_named)
		limit_resize(&budget->limit, bytes);
	mutex_unlock(&budget->instance->lock);
	return is_named ? 0 : -EINVAL;
}

static int show_meminfo(struct seq_file *to, void *unused)
{
	struct budget *budget = to->private;
	const struct limit *limit = &budget->limit;

	mutex_lock(&budget->instance->lock);
	seq_printf(to, "Free: %llu\n",
		   limit->used_bytes < limit->limit_bytes ? limit->limit_bytes - limit->used_bytes : 0);
	members_show(to, budget, "PID: ", " Mem: ");
	mutex_unlock(&budget->instance->lock);
	return 0;
}

static int may_read(void *unused)
{
	return access_check_read();
}

PROC_FILE(most_instances, may_read, show_most_instances, set_most_instances);
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
	if (card->folder && proc_create_data("max_inst", 0600, card->folder, &most_instances_ops, card) &&
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

static int add_budget(struct budget *budget)
{
	if (budget->folder)
		return 0;
	budget->folder = proc_mkdir(budget->instance->name, cards[budget_card(budget)].folder);
	if (budget->folder && proc_create_data("id", 0400, budget->folder, &id_ops, budget) &&
	    proc_create_data("memsize", 0600, budget->folder, &memsize_ops, budget) &&
	    proc_create_data("meminfo", 0400, budget->folder, &meminfo_ops, budget))
		return 0;
	proc_remove(budget->folder);
	budget->folder = NULL;
	return -ENOMEM;
}

int proc_budgets_add(struct instance *instance, u32 wanted)
{
	int error = proc_budgets_add_cards(wanted);
	u32 card;

	for (card = 0; card < CORE_CARDS && !error; card++)
		if (wanted >> card & 1)
			error = add_budget(&instance->budgets[card]);
	return error;
}

void proc_budgets_remove(struct instance *instance)
{
	u32 card;

	for (card = 0; card < CORE_CARDS; card++) {
		proc_remove(instance->budgets[card].folder);
		instance->budgets[card].folder = NULL;
	}
}
