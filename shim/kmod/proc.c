// SPDX-License-Identifier: MIT OR GPL-2.0
#include "proc.h"

#include <linux/err.h>
#include <linux/kernel.h>
#include <linux/proc_fs.h>
#include <linux/seq_file.h>
#include <linux/slab.h>

#include "access.h"
#include "attach.h"
#include "budgets.h"
#include "commands.h"
#include "copies.h"
#include "files.h"
#include "guard.h"
#include "parse.h"
#include "proc_budgets.h"
#include "proc_file.h"
#include "processes.h"
#include "watch.h"

static struct proc_dir_entry *root;

static int may_read(void *unused)
{
	return 0;
}

static int may_read_all(void *unused)
{
	return access_check_read();
}

static int show_version(struct seq_file *to, void *unused)
{
	seq_puts(to, VRAMPACK_VERSION "\n");
	return 0;
}

static int show_major(struct seq_file *to, void *unused)
{
	seq_puts(to, "0\n");
	return 0;
}

static int show_state(struct seq_file *to, void *unused)
{
	static const char *const uvm[] = {
		[GUARD_ABSENT] = "absent",
		[GUARD_ON] = "guarded",
		[GUARD_MISSING] = "unguarded",
	};

	commands_lock();
	seq_printf(to, "attached: %s\n", attach_is_on() ? "yes" : "no");
	if (attach_is_on()) {
		seq_printf(to, "driver: %s\n", attach_version());
		seq_printf(to, "layout: %s\n", attach_has_one_device() ? "one device" : "two devices");
	}
	seq_printf(to, "uvm: %s\n", uvm[guard_state()]);
	seq_printf(to, "copies: %s\n", copies_are_checked() ? "checked" : "unchecked");
	seq_printf(to, "cards: %s\n", watch_is_on() ? "watched" : "unwatched");
	seq_printf(to, "unknown: %s\n", budgets_deny_unknown() ? "denied" : "passed");
	seq_printf(to, "instances: %u\n", budgets_count());
	seq_printf(to, "files: %d\n", files_count());
	commands_unlock();
	return 0;
}

static int show_default_memsize(struct seq_file *to, void *unused)
{
	seq_printf(to, "%llu\n", commands_default_bytes());
	return 0;
}

static int set_default_memsize(void *unused, u64 bytes)
{
	if (!bytes)
		return -EINVAL;
	commands_set_default_bytes(bytes);
	return 0;
}

PROC_FILE(version, may_read, show_version, NULL);
PROC_FILE(major, may_read, show_major, NULL);
PROC_FILE(state, may_read_all, show_state, NULL);
PROC_FILE(default_memsize, may_read_all, show_default_memsize, set_default_memsize);

/* A reader's position: after the budget with the id *at. */
static void *start_budgets(struct seq_file *to, loff_t *at)
{
	return budgets_next(*at);
}

static void *next_budget(struct seq_file *to, void *this, loff_t *at)
{
	struct budget *budget = this;

	*at = budget->id;
	budgets_put(budget);
	return budgets_next(*at);
}

static void stop_budgets(struct seq_file *to, void *this)
{
	if (this)
		budgets_put(this);
}

static void show_card_budget(struct seq_file *to, const struct card_budget *card_budget)
{
	const struct limit *limit = &card_budget->limit;
	const char *name = card_budget->budget->name;
	u32 number = card_budget_number(card_budget);
	char process[BUDGET_NAME_MAX + 32];

	if (!card_budget->was_named)
		return;
	seq_printf(to, "card %s %u limit=%llu used=%llu peak=%llu refused=%llu\n", name, number, limit->limit_bytes,
		   limit->used_bytes, limit->peak_bytes, limit->refused);
	snprintf(process, sizeof(process), "process %s %u pid=", name, number);
	processes_show(to, card_budget, process, " used=");
}

static int show_budget(struct seq_file *to, void *this)
{
	struct budget *budget = this;
	u32 card;

	mutex_lock(&budget->lock);
	seq_printf(to, "instance %s id=%u ", budget->name, budget->id);
	if (budget->pidns_number)
		seq_printf(to, "pidns=%u", budget->pidns_number);
	else
		seq_printf(to, "cgroup=%llu", budget->cgroup);
	seq_printf(to, " weight=%u files=%u groups=%u%s%s\n", budget->weight, budget->file_count,
		   READ_ONCE(budget->core.objects.group_count),
		   budget->is_deny ? " deny=1" : "", budget->is_removed ? " removed=1" : "");
	for (card = 0; card < CORE_CARDS; card++)
		show_card_budget(to, &budget->card_budgets[card]);
	mutex_unlock(&budget->lock);
	return 0;
}

static const struct seq_operations budget_lines = {
	.start = start_budgets,
	.next = next_budget,
	.stop = stop_budgets,
	.show = show_budget,
};

static int open_commands(struct inode *inode, struct file *file)
{
	int error = proc_file_check_access(inode, file, may_read_all);

	return error ? error : seq_open(file, &budget_lines);
}

/* One write is one command, wherever the file's position is. */
static ssize_t write_command(struct file *file, const char __user *from, size_t size, loff_t *at)
{
	int error = access_check_write(file);
	char *text;

	if (error)
		return error;
	text = parse_copy_line(from, size);
	if (IS_ERR(text))
		return PTR_ERR(text);
	error = commands_run(text);
	kfree(text);
	return error ? error : size;
}

static const struct proc_ops commands_ops = {
	.proc_open = open_commands,
	.proc_read = seq_read,
	.proc_lseek = seq_lseek,
	.proc_write = write_command,
	.proc_release = seq_release,
};

int proc_begin(void)
{
	root = proc_mkdir("cgpu_km", NULL);
	proc_budgets_begin(root);
	if (root && proc_create("version", 0444, root, &version_ops) &&
	    proc_create("major", 0444, root, &major_ops) &&
	    proc_create("state", 0400, root, &state_ops) &&
	    proc_create("default_memsize", 0600, root, &default_memsize_ops) &&
	    proc_create("inst_ctl", 0600, root, &commands_ops))
		return 0;
	proc_end();
	return -ENOMEM;
}

void proc_end(void)
{
	proc_remove(root);
}
