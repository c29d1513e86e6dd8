// SPDX-License-Identifier: MIT OR GPL-2.0
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include "guard.h"

#include <linux/errno.h>
#include <linux/kobject.h>
#include <linux/kprobes.h>
#include <linux/module.h>
#include <linux/mutex.h>
#include <linux/notifier.h>
#include <linux/printk.h>
#include <linux/ptrace.h>
#include <linux/string.h>

#include "budgets.h"
#include "owners.h"

#define UVM "nvidia_uvm"
#define STATUS_UVM_ADDRESS_IN_USE 0x68 /* nvstatuscodes.h, 515.43.04 to 595.45.04 */

static DEFINE_MUTEX(guard_lock);
static struct kprobe probe;
static enum guard_state state;
static bool is_leaving;

/*
 * Runs in place of the driver's function that makes a managed range (uvm_va_range_create_mmap in uvm_va_range.c). With
 * this answer uvm_mmap maps a range that was made before and expects to be mapped: a semaphore pool, or from 580 on
 * memory of the card that was charged when it was allocated.
 */
static noinline u32 say_in_use(void)
{
	return STATUS_UVM_ADDRESS_IN_USE;
}

static int on_create(struct kprobe *unused, struct pt_regs *regs)
{
	if (!owners_manage_current())
		return 0;
	instruction_pointer_set(regs, (unsigned long)say_in_use);
	return 1;
}
NOKPROBE_SYMBOL(on_create);

/* A probe with a post handler is not optimised into a jump, which could not redirect the call. */
static void after(struct kprobe *unused, struct pt_regs *regs, unsigned long flags)
{
}
NOKPROBE_SYMBOL(after);

static bool is_loaded(void)
{
	struct kobject *module = kset_find_obj(THIS_MODULE->mkobj.kobj.kset, UVM);

	kobject_put(module);
	return module;
}

static void become(enum guard_state next, int error)
{
	if (next == GUARD_MISSING && state != GUARD_MISSING)
		pr_err("no probe on uvm_va_range_create_mmap (%d): while nvidia-uvm is loaded, managed tasks cannot open the driver and no instance is added\n",
		       error);
	WRITE_ONCE(state, next);
}

/*
 * With the lock held. A probe that failed before may work now: memory was short, or nvidia-uvm was being unloaded
 * when this module was loaded.
 */
static void put_on(bool is_coming)
{
	int error;

	if (state == GUARD_ON)
		return;
	memset(&probe, 0, sizeof(probe));
	probe.symbol_name = UVM ":uvm_va_range_create_mmap";
	probe.pre_handler = on_create;
	probe.post_handler = after;
	/* Optimised as a whole, the driver may have the function in its caller, where the probe does not see it. */
	error = IS_ENABLED(CONFIG_LTO_CLANG) ? -EOPNOTSUPP : register_kprobe(&probe);
	if (!error)
		become(GUARD_ON, 0);
	else
		become(is_coming || is_loaded() ? GUARD_MISSING : GUARD_ABSENT, error);
}

static void take_off(void)
{
	if (state == GUARD_ON)
		unregister_kprobe(&probe);
	become(GUARD_ABSENT, 0);
}

/*
 * With the lock held. The driver's functions are still found by name until its memory is freed, and a kernel that
 * looks at one of them while that happens warns. None of them runs any more.
 */
static void leave(void)
{
	take_off();
	is_leaving = true;
}

/*
 * With the lock held. Managed tasks that have the driver open could map nvidia-uvm: where there may be some, it must
 * not load. The kernel does not report a module's end to a notifier that refused it.
 */
static int come(void)
{
	is_leaving = false;
	put_on(true);
	if (state != GUARD_MISSING || !budgets_count())
		return NOTIFY_OK;
	pr_err("nvidia-uvm may not load while there are instances\n");
	leave();
	return notifier_from_errno(-EIO);
}

/* COMING is reported before the module's first function runs, GOING after its last one. */
static int on_module(struct notifier_block *unused, unsigned long event, void *data)
{
	struct module *module = data;
	int answer = NOTIFY_OK;

	if (strcmp(module->name, UVM))
		return NOTIFY_DONE;
	mutex_lock(&guard_lock);
	if (event == MODULE_STATE_COMING)
		answer = come();
	else if (event == MODULE_STATE_GOING)
		leave();
	mutex_unlock(&guard_lock);
	return answer;
}

/*
 * Runs before the kernel's own notifier for probes: 5.10 cannot remove a probe that it has already given up because
 * its module goes, and would keep it in its lists.
 */
static struct notifier_block modules = { .notifier_call = on_module, .priority = 1 };

int guard_begin(void)
{
	int error = register_module_notifier(&modules);

	if (error)
		return error;
	guard_retry();
	return 0;
}

void guard_end(void)
{
	unregister_module_notifier(&modules);
	take_off();
}

enum guard_state guard_state(void)
{
	return READ_ONCE(state);
}

void guard_retry(void)
{
	mutex_lock(&guard_lock);
	if (!is_leaving)
		put_on(false);
	mutex_unlock(&guard_lock);
}
