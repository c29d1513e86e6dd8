// SPDX-License-Identifier: MIT OR GPL-2.0
#include "ops.h"

#include <linux/kernel.h>
#include <linux/mm.h>
#include <linux/mutex.h>
#include <linux/slab.h>
#include <linux/string.h>
#include <linux/uaccess.h>

#include "proc_budgets.h"
#include "processes.h"

static int copy_in(void *unused, void *to, uint64_t from, size_t size)
{
	return copy_from_user(to, u64_to_user_ptr(from), size) ? -EFAULT : 0;
}

static int copy_out(void *unused, uint64_t to, const void *from, size_t size)
{
	return copy_to_user(u64_to_user_ptr(to), from, size) ? -EFAULT : 0;
}

static void lock(void *context)
{
	struct budget *budget = context;

	mutex_lock(&budget->core_lock);
}

static void unlock(void *context)
{
	struct budget *budget = context;

	mutex_unlock(&budget->core_lock);
}

/*
 * Charged to the cgroup of the calling task. When that has no memory left, nothing is logged and the call is refused.
 */
static void *grow(void *unused, void *memory, size_t old_size, size_t new_size)
{
	void *bigger = NULL;

	if (new_size) {
		bigger = kvzalloc(new_size, GFP_KERNEL_ACCOUNT | __GFP_NOWARN);
		if (!bigger)
			return NULL;
		if (memory)
			memcpy(bigger, memory, min(old_size, new_size));
	}
	kvfree(memory);
	return bigger;
}

static bool try_charge(void *unused, void *owner, uint32_t card, uint64_t bytes)
{
	return processes_try_charge(owner, card, bytes);
}

static void settle_charge(void *unused, void *owner, uint32_t card, uint64_t more_bytes)
{
	processes_settle_charge(owner, card, more_bytes);
}

static void uncharge(void *unused, void *owner, uint32_t card, uint64_t bytes)
{
	processes_uncharge(owner, card, bytes);
}

static bool usage(void *unused, void *owner, uint32_t card, uint64_t *limit, uint64_t *used)
{
	return processes_usage(owner, card, limit, used);
}

static uint32_t groups_most(void *context)
{
	return proc_budgets_max_groups(context);
}

const struct core_ops kernel_ops = {
	.copy_in = copy_in,
	.copy_out = copy_out,
	.lock = lock,
	.unlock = unlock,
	.grow = grow,
	.try_charge = try_charge,
	.settle_charge = settle_charge,
	.uncharge = uncharge,
	.usage = usage,
	.groups_most = groups_most,
	.knows_all_clients = true,
};
