// SPDX-License-Identifier: MIT OR GPL-2.0
#include "duplicates.h"

#include <linux/hashtable.h>
#include <linux/kprobes.h>
#include <linux/module.h>
#include <linux/mutex.h>
#include <linux/notifier.h>
#include <linux/ptrace.h>
#include <linux/rculist.h>
#include <linux/slab.h>
#include <linux/spinlock.h>
#include <linux/string.h>

#include "../core/core.h"
#include "../core/layouts.h"
#include "budgets.h"
#include "driver_call.h"
#include "owners.h"
#include "passage.h"

#define DRIVER "nvidia"

/* A duplicate that carries a charge, found by what nvidia-uvm names when it frees it. */
struct duplicate {
	struct hlist_node node;
	void *device;
	u32 handle, charge;
	struct budget *budget; /* with a reference */
	struct rcu_head rcu;
};

/* NvHandle and NV_STATUS have 32 bits: kernel-open/common/inc/nv_uvm_interface.h, 515.43.04 to 595.45.04. */
typedef u32 dup_function(void *device, u32 client, u32 memory, u32 *handle, void *info);
typedef u32 free_function(void *device, u32 handle);

DEFINE_STATIC_CALL_NULL(driver_dup, dup_function);
DEFINE_STATIC_CALL_NULL(driver_free, free_function);

static DEFINE_HASHTABLE(duplicates, 10);
static DEFINE_SPINLOCK(duplicates_lock);
static DEFINE_MUTEX(probes_lock);
static struct kprobe dup_probe, free_probe;
static bool is_on; /* no call is redirected before it is true: the driver could not be called */

static u32 key_of(const void *device, u32 handle)
{
	return (u32)(uintptr_t)device ^ handle;
}

static struct duplicate *find(const void *device, u32 handle)
{
	struct duplicate *one;

	hash_for_each_possible_rcu(duplicates, one, node, key_of(device, handle), lockdep_is_held(&duplicates_lock))
		if (one->device == device && one->handle == handle)
			return one;
	return NULL;
}
NOKPROBE_SYMBOL(find);

static void add(struct duplicate *one)
{
	spin_lock(&duplicates_lock);
	hash_add_rcu(duplicates, &one->node, key_of(one->device, one->handle));
	spin_unlock(&duplicates_lock);
}

static struct duplicate *take(const void *device, u32 handle)
{
	struct duplicate *one;

	spin_lock(&duplicates_lock);
	one = find(device, handle);
	if (one)
		hash_del_rcu(&one->node);
	spin_unlock(&duplicates_lock);
	return one;
}

static void let_go(struct duplicate *one)
{
	core_put_hold(&one->budget->core, one->charge);
	budgets_drop_hold(one->budget);
	kfree_rcu(one, rcu);
}

static u32 call_dup(void *device, u32 client, u32 memory, u32 *handle, void *info)
{
	struct passage *passage = passage_enter(&dup_probe);
	u32 status = static_call(driver_dup)(device, client, memory, handle, info);

	passage_leave(passage);
	return status;
}

/* Does the client belong to any container? One that does not was made through a file that is not managed. */
static bool is_anothers(u32 client)
{
	struct budget *budget;
	bool is_known = false;
	u32 id = 0, charge;

	while (!is_known && (budget = budgets_next(id))) {
		id = budget->id;
		is_known = core_hold(&budget->core, client, 0, &charge);
		budgets_put(budget);
	}
	return is_known;
}

/* The charge is held before the driver is asked: the handle may be freed meanwhile. */
static u32 dup_held(struct budget *budget, void *device, u32 client, u32 memory, u32 *handle, void *info)
{
	struct duplicate *one = kzalloc(sizeof(*one), GFP_KERNEL_ACCOUNT);
	u32 status = STATUS_NOT_PERMITTED;

	if (!one)
		return STATUS_NO_MEMORY;
	if (core_hold(&budget->core, client, memory, &one->charge) || !is_anothers(client))
		status = call_dup(device, client, memory, handle, info);
	if (!one->charge) {
		kfree(one);
		return status;
	}
	budgets_add_hold(budget);
	one->budget = budget;
	one->device = device;
	one->handle = status ? 0 : *handle;
	if (status)
		let_go(one);
	else
		add(one);
	return status;
}

/*
 * Runs in place of the driver's function, for the calls that the handlers redirect here, with the module reference
 * that they took. The calls sleep in the driver; inflight_end waits for the few instructions before and after.
 */
static noinline u32 dup_for_managed(void *device, u32 client, u32 memory, u32 *handle, void *info)
{
	struct budget *budget = budgets_get_current();
	u32 status;

	if (budget) {
		status = dup_held(budget, device, client, memory, handle, info);
		budgets_put(budget);
	} else {
		status = call_dup(device, client, memory, handle, info);
	}
	module_put(THIS_MODULE);
	return status;
}

/* The duplicate leaves the table before the driver frees it: the driver may give out the same handle at once. */
static noinline u32 free_held(void *device, u32 handle)
{
	struct duplicate *one = take(device, handle);
	struct passage *passage = passage_enter(&free_probe);
	u32 status = static_call(driver_free)(device, handle);

	passage_leave(passage);
	if (one && status)
		add(one);
	else if (one)
		let_go(one);
	module_put(THIS_MODULE);
	return status;
}

static int on_dup(struct kprobe *unused, struct pt_regs *regs)
{
	if (!READ_ONCE(is_on) || !owners_manage_current() || passage_is_open(&dup_probe) ||
	    !try_module_get(THIS_MODULE))
		return 0;
	instruction_pointer_set(regs, (unsigned long)dup_for_managed);
	return 1;
}
NOKPROBE_SYMBOL(on_dup);

/* Any task may come here: the last one to drop a mapping may not be the container's. */
static int on_free(struct kprobe *unused, struct pt_regs *regs)
{
	const void *device = (const void *)regs_get_kernel_argument(regs, 0);
	bool is_ours;

	rcu_read_lock();
	is_ours = find(device, (u32)regs_get_kernel_argument(regs, 1));
	rcu_read_unlock();
	if (!is_ours || passage_is_open(&free_probe) || !try_module_get(THIS_MODULE))
		return 0;
	instruction_pointer_set(regs, (unsigned long)free_held);
	return 1;
}
NOKPROBE_SYMBOL(on_free);

/* A probe with a post handler is not optimised into a jump, which could not redirect the call. */
static void after(struct kprobe *unused, struct pt_regs *regs, unsigned long flags)
{
}
NOKPROBE_SYMBOL(after);

static int put_on(struct kprobe *probe, const char *symbol, kprobe_pre_handler_t handler)
{
	memset(probe, 0, sizeof(*probe));
	probe->symbol_name = symbol;
	probe->pre_handler = handler;
	probe->post_handler = after;
	return register_kprobe(probe);
}

void duplicates_watch(void)
{
	mutex_lock(&probes_lock);
	if (!is_on && !put_on(&dup_probe, DRIVER ":nvUvmInterfaceDupMemory", on_dup)) {
		if (put_on(&free_probe, DRIVER ":nvUvmInterfaceFreeDupedHandle", on_free)) {
			unregister_kprobe(&dup_probe);
		} else {
			static_call_update(driver_dup, (dup_function *)dup_probe.addr);
			static_call_update(driver_free, (free_function *)free_probe.addr);
			WRITE_ONCE(is_on, true);
		}
	}
	mutex_unlock(&probes_lock);
}

bool duplicates_are_watched(void)
{
	return READ_ONCE(is_on);
}

/*
 * Called when the driver goes, so that nvidia-uvm, which holds it, is gone; or when this module goes, and no file is
 * managed.
 */
static void stop(void)
{
	struct duplicate *one;
	struct hlist_node *next;
	int bucket;

	mutex_lock(&probes_lock);
	if (is_on) {
		unregister_kprobe(&free_probe);
		unregister_kprobe(&dup_probe);
	}
	WRITE_ONCE(is_on, false);
	mutex_unlock(&probes_lock);
	hash_for_each_safe(duplicates, bucket, next, one, node) {
		hash_del_rcu(&one->node);
		let_go(one);
	}
}

/* The driver's code is freed after this, and a probe on it would stay in the kernel's lists: see guard.c. */
static int on_module(struct notifier_block *unused, unsigned long event, void *data)
{
	struct module *module = data;

	if (event == MODULE_STATE_GOING && !strcmp(module->name, DRIVER))
		stop();
	return NOTIFY_DONE;
}

static struct notifier_block modules = { .notifier_call = on_module, .priority = 1 };

int duplicates_begin(void)
{
	return register_module_notifier(&modules);
}

void duplicates_end(void)
{
	unregister_module_notifier(&modules);
	stop();
}
