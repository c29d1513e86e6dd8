// SPDX-License-Identifier: MIT OR GPL-2.0
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include "commands.h"

#include <linux/err.h>
#include <linux/kernel.h>
#include <linux/mutex.h>
#include <linux/printk.h>
#include <linux/slab.h>
#include <linux/string.h>

#include "attach.h"
#include "budgets.h"
#include "guard.h"
#include "ops.h"
#include "parse.h"
#include "proc_budgets.h"
#include "processes.h"

static DEFINE_MUTEX(commands);
static const char *control;
static u64 default_bytes;

void commands_lock(void)
{
	mutex_lock(&commands);
}

void commands_unlock(void)
{
	mutex_unlock(&commands);
}

void commands_begin(const char *node)
{
	control = node;
}

u64 commands_default_bytes(void)
{
	return READ_ONCE(default_bytes);
}

void commands_set_default_bytes(u64 bytes)
{
	WRITE_ONCE(default_bytes, bytes);
}

static int refuse(int error, const char *what, const char *why)
{
	pr_notice_ratelimited("%s: refused, %s\n", what, why);
	return error;
}

/* The rest of a word after `prefix`; NULL: it does not begin so. */
static const char *after(const char *word, const char *prefix)
{
	size_t size = strlen(prefix);

	return strncmp(word, prefix, size) ? NULL : word + size;
}

static int read_owner(const char *word, struct owner *owner)
{
	const char *number;
	u64 value;

	*owner = (struct owner){ 0 };
	number = word ? after(word, "cgroup=") : NULL;
	if (number) {
		if (!parse_number(number, &owner->cgroup) || !owner->cgroup)
			return refuse(-EINVAL, "add", "a cgroup's id is a number");
		return 0;
	}
	number = word ? after(word, "pidns=") : NULL;
	if (!number || !parse_number(number, &value) || !value || value > INT_MAX)
		return refuse(-EINVAL, "add", "after the name comes cgroup=ID or pidns=PID");
	if (owners_from_pid((pid_t)value, owner))
		return refuse(-ESRCH, "add", "there is no such process");
	return 0;
}

static int read_weight(const char *number, struct budget_request *request)
{
	u64 weight;

	if (request->weight || !parse_number(number, &weight) || !weight || weight > BUDGET_WEIGHT_MAX)
		return refuse(-EINVAL, request->name, "weight may be given once, from 1 to 16");
	request->weight = weight;
	return 0;
}

static int read_card(char *word, struct budget_request *request)
{
	char *number = strsep(&word, "=");
	u64 card, bytes = request->is_deny ? 0 : commands_default_bytes();

	if (!parse_number(number, &card) || card >= CORE_CARDS || request->cards >> card & 1)
		return refuse(-EINVAL, request->name, "a card is a number below 32, given once");
	if (word && request->is_deny)
		return refuse(-EINVAL, request->name, "deny takes cards without bytes");
	if (word && !parse_number(word, &bytes))
		return refuse(-EINVAL, request->name, "a card's bytes are a number of 64 bits");
	if (!word && !bytes && !request->is_deny)
		return refuse(-EINVAL, request->name, "a card without bytes, and there is no default_memsize");
	request->cards |= 1u << card;
	request->bytes[card] = bytes;
	return 0;
}

static int read_limits(char *rest, struct budget_request *request)
{
	const char *weight;
	int error = 0;
	char *word;

	while (!error && (word = parse_next_field(&rest))) {
		weight = after(word, "weight=");
		error = weight ? read_weight(weight, request) : read_card(word, request);
	}
	if (!error && !request->cards)
		return refuse(-EINVAL, request->name, "no card is named");
	if (!request->weight)
		request->weight = 1;
	return error;
}

/* All that can refuse it, before anything changes. */
static int check(const struct budget *old, const struct budget_request *request)
{
	const struct budget *holder = owners_find_budget(&request->owner);
	u32 card;

	if (!attach_is_on())
		return refuse(-ENODEV, request->name, "not attached to the driver");
	guard_retry();
	if (guard_state() == GUARD_MISSING)
		return refuse(-EIO, request->name, "managed memory cannot be refused");
	if (old && old->is_deny != request->is_deny)
		return refuse(-EEXIST, request->name, "an instance of another kind has that name");
	/* `deny` never limits a task that may send commands. */
	if (!request->is_deny && owners_include_current(&request->owner))
		return refuse(-EINVAL, request->name, "the sender of the command would be in it");
	if (holder && holder != old)
		return refuse(-EEXIST, request->name, "another instance has that identity");
	for (card = 0; card < CORE_CARDS; card++) {
		if (request->is_deny || !(request->cards >> card & 1) || (old && old->card_budgets[card].is_named))
			continue;
		if (budgets_count_on_card(card) >= proc_budgets_max_on_card(card))
			return refuse(-ENOSPC, request->name, "a card has max_inst instances");
	}
	return 0;
}

static int apply(struct budget *old, struct budget_request *request)
{
	struct budget *budget = old ? old : budgets_create(request->name, &kernel_ops, attach_version());
	int error;

	if (IS_ERR(budget))
		return PTR_ERR(budget);
	error = proc_budgets_add(budget, request->cards);
	if (!error)
		error = budgets_change(budget, request);
	if (error && !old) {
		proc_budgets_remove(budget);
		budgets_put(budget);
	}
	return error;
}

static int read_and_apply(char *rest, struct budget_request *request)
{
	const char *name = parse_next_field(&rest);
	struct budget *old;
	int error;

	if (!name || !parse_is_name(name))
		return refuse(-EINVAL, "add", "a name is letters, digits, dots, underscores and dashes");
	strscpy(request->name, name, sizeof(request->name));
	error = read_owner(parse_next_field(&rest), &request->owner);
	if (error)
		return error;
	if (request->is_deny && !request->owner.cgroup) {
		owners_release(&request->owner);
		return refuse(-EINVAL, request->name, "deny takes cgroup=ID");
	}
	old = budgets_find(request->name);
	error = read_limits(rest, request);
	if (!error)
		error = check(old, request);
	if (!error)
		error = apply(old, request);
	if (error)
		owners_release(&request->owner);
	return error;
}

static int add(char *rest, bool is_deny)
{
	struct budget_request *request = kzalloc(sizeof(*request), GFP_KERNEL);
	int error;

	if (!request)
		return -ENOMEM;
	request->is_deny = is_deny;
	error = read_and_apply(rest, request);
	kfree(request);
	return error;
}

static int run_add(char *rest)
{
	return add(rest, false);
}

static int run_deny(char *rest)
{
	return add(rest, true);
}

static int run_remove(char *rest)
{
	const char *name = parse_next_field(&rest);
	struct budget *budget;

	if (!name || rest)
		return refuse(-EINVAL, "remove", "it takes one name");
	budget = parse_is_name(name) ? budgets_find(name) : NULL;
	if (!budget)
		return refuse(-ENOENT, "remove", "there is no such instance");
	proc_budgets_remove(budget);
	budgets_remove(budget);
	return 0;
}

static int run_cards(char *rest)
{
	u32 cards = 0;
	char *word;
	u64 card;

	while ((word = parse_next_field(&rest))) {
		if (!parse_number(word, &card) || card >= CORE_CARDS)
			return refuse(-EINVAL, "cards", "a card is a number below 32");
		cards |= 1u << card;
	}
	return cards ? proc_budgets_add_cards(cards) : refuse(-EINVAL, "cards", "no card is named");
}

static int run_attach(char *rest)
{
	return rest ? refuse(-EINVAL, "attach", "it takes no arguments") : attach_begin(control);
}

static int run_detach(char *rest)
{
	if (rest)
		return refuse(-EINVAL, "detach", "it takes no arguments");
	attach_end();
	return 0;
}

static const struct {
	const char *name;
	int (*run)(char *rest);
} known[] = {
	{ "add", run_add },	  { "deny", run_deny },	    { "remove", run_remove },
	{ "cards", run_cards }, { "detach", run_detach }, { "attach", run_attach },
};

int commands_run(char *text)
{
	const char *name = parse_next_field(&text);
	size_t i;
	int error;

	for (i = 0; i < ARRAY_SIZE(known); i++) {
		if (strcmp(known[i].name, name))
			continue;
		commands_lock();
		error = known[i].run(text);
		commands_unlock();
		return error;
	}
	return refuse(-EINVAL, "inst_ctl", "no such command");
}

void commands_end(void)
{
	struct budget *budget;
	u32 id = 0;

	while ((budget = budgets_next(id))) {
		id = budget->id;
		if (budget->owner)
			budgets_remove(budget);
		processes_end(budget);
		budgets_put(budget);
	}
}
