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
#include "guard.h"
#include "instances.h"
#include "members.h"
#include "proc_budgets.h"
#include "parse.h"

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

static int read_identity(const char *word, struct identity *identity)
{
	const char *number;
	u64 value;

	*identity = (struct identity){ 0 };
	number = word ? after(word, "cgroup=") : NULL;
	if (number) {
		if (!parse_number(number, &identity->cgroup) || !identity->cgroup)
			return refuse(-EINVAL, "add", "a cgroup's id is a number");
		return 0;
	}
	number = word ? after(word, "pidns=") : NULL;
	if (!number || !parse_number(number, &value) || !value || value > INT_MAX)
		return refuse(-EINVAL, "add", "after the name comes cgroup=ID or pidns=PID");
	if (identities_of_process((pid_t)value, identity))
		return refuse(-ESRCH, "add", "there is no such process");
	return 0;
}

static int read_weight(const char *number, struct instance_request *request)
{
	u64 weight;

	if (request->weight || !parse_number(number, &weight) || !weight || weight > INSTANCE_WEIGHT_MOST)
		return refuse(-EINVAL, request->name, "weight is said once, and is 1 to 16");
	request->weight = weight;
	return 0;
}

static int read_card(char *word, struct instance_request *request)
{
	char *number = strsep(&word, "=");
	u64 card, bytes = commands_default_bytes();

	if (!parse_number(number, &card) || card >= CORE_CARDS || request->cards >> card & 1)
		return refuse(-EINVAL, request->name, "a card is a number below 32, and said once");
	if (word && !parse_number(word, &bytes))
		return refuse(-EINVAL, request->name, "a card's bytes are a number of 64 bits");
	if (!word && !bytes)
		return refuse(-EINVAL, request->name, "a card without bytes, and there is no default_memsize");
	request->cards |= 1u << card;
	request->bytes[card] = bytes;
	return 0;
}

static int read_limits(char *rest, struct instance_request *request)
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
static int check(const struct instance *old, const struct instance_request *request)
{
	const struct instance *holder = identities_holder(&request->identity);
	u32 card;

	if (!attach_is_on())
		return refuse(-ENODEV, request->name, "not attached to the driver");
	guard_look();
	if (guard_state() == GUARD_MISSING)
		return refuse(-EIO, request->name, "managed memory cannot be refused");
	if (identities_have_current(&request->identity))
		return refuse(-EINVAL, request->name, "who gives the command would be in it himself");
	if (holder && holder != old)
		return refuse(-EEXIST, request->name, "another instance has that identity");
	for (card = 0; card < CORE_CARDS; card++) {
		if (!(request->cards >> card & 1) || (old && old->budgets[card].is_named))
			continue;
		if (instances_on_card(card) >= proc_budgets_max_on_card(card))
			return refuse(-ENOSPC, request->name, "a card has max_inst instances");
	}
	return 0;
}

static int apply(struct instance *old, struct instance_request *request)
{
	struct instance *instance = old ? old : instances_new(request->name, attach_version());
	int error;

	if (IS_ERR(instance))
		return PTR_ERR(instance);
	error = proc_budgets_add(instance, request->cards);
	if (!error)
		error = instances_change(instance, request);
	if (error && !old) {
		proc_budgets_remove(instance);
		instances_put(instance);
	}
	return error;
}

static int read_and_apply(char *rest, struct instance_request *request)
{
	const char *name = parse_next_field(&rest);
	struct instance *old;
	int error;

	if (!name || !parse_is_name(name))
		return refuse(-EINVAL, "add", "a name is letters, digits, dots, underscores and dashes");
	strscpy(request->name, name, sizeof(request->name));
	error = read_identity(parse_next_field(&rest), &request->identity);
	if (error)
		return error;
	old = instances_named(request->name);
	error = read_limits(rest, request);
	if (!error)
		error = check(old, request);
	if (!error)
		error = apply(old, request);
	if (error)
		identities_release(&request->identity);
	return error;
}

static int run_add(char *rest)
{
	struct instance_request *request = kzalloc(sizeof(*request), GFP_KERNEL);
	int error;

	if (!request)
		return -ENOMEM;
	error = read_and_apply(rest, request);
	kfree(request);
	return error;
}

static int run_remove(char *rest)
{
	const char *name = parse_next_field(&rest);
	struct instance *instance;

	if (!name || rest)
		return refuse(-EINVAL, "remove", "it takes one name");
	instance = parse_is_name(name) ? instances_named(name) : NULL;
	if (!instance)
		return refuse(-ENOENT, "remove", "there is no such instance");
	proc_budgets_remove(instance);
	instances_remove(instance);
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
	return cards ? proc_budgets_add_cards(cards) : refuse(-EINVAL, "cards", "none is named");
}

static int run_attach(char *rest)
{
	return rest ? refuse(-EINVAL, "attach", "it takes no more") : attach_begin(control);
}

static int run_detach(char *rest)
{
	if (rest)
		return refuse(-EINVAL, "detach", "it takes no more");
	attach_end();
	return 0;
}

static const struct {
	const char *name;
	int (*run)(char *rest);
} known[] = {
	{ "add", run_add },	  { "remove", run_remove }, { "cards", run_cards },
	{ "detach", run_detach }, { "attach", run_attach },
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
	struct instance *instance;
	u32 id = 0;

	while ((instance = instances_after(id))) {
		id = instance->id;
		if (instance->identity)
			instances_remove(instance);
		members_end(instance);
		instances_put(instance);
	}
}
