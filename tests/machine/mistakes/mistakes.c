// SPDX-License-Identifier: Apache-2.0
/*
 * Mistakes that a kernel should catch, one at a time, when it is loaded: the machines' tests see that it does.
 */
#include <linux/module.h>
#include <linux/mutex.h>
#include <linux/preempt.h>
#include <linux/slab.h>
#include <linux/string.h>

static char *mistake = "none";
module_param(mistake, charp, 0);
MODULE_PARM_DESC(mistake, "which");

static DEFINE_MUTEX(first);
static DEFINE_MUTEX(second);
static char *forgotten;

static void overflow(void)
{
	char *bytes = kmalloc(10, GFP_KERNEL);

	if (bytes)
		((volatile char *)bytes)[12] = 1;
	kfree(bytes);
}

static void forget(void)
{
	forgotten = kmalloc(4711, GFP_KERNEL);
	WRITE_ONCE(forgotten, NULL);
}

static void sleep_where_nobody_may(void)
{
	preempt_disable();
	might_sleep();
	preempt_enable();
}

static void lock(struct mutex *outer, struct mutex *inner)
{
	mutex_lock(outer);
	mutex_lock(inner);
	mutex_unlock(inner);
	mutex_unlock(outer);
}

static void lock_both_ways(void)
{
	lock(&first, &second);
	lock(&second, &first);
}

static void warn(void)
{
	WARN_ON(1);
}

static void oops(void)
{
	WRITE_ONCE(*(volatile int *)8, 1);
}

static const struct {
	const char *name;
	void (*make)(void);
} mistakes[] = {
	{ "overflow", overflow },
	{ "forget", forget },
	{ "sleep", sleep_where_nobody_may },
	{ "locks", lock_both_ways },
	{ "warn", warn },
	{ "oops", oops },
};

/* Refuses to stay, so that the next one can be made. */
static int __init mistakes_init(void)
{
	size_t i;

	for (i = 0; i < ARRAY_SIZE(mistakes); i++)
		if (!strcmp(mistake, mistakes[i].name))
			mistakes[i].make();
	return -ECANCELED;
}
module_init(mistakes_init);

MODULE_DESCRIPTION("Mistakes, for those who look for them");
MODULE_LICENSE("GPL");
