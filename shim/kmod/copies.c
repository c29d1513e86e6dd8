// SPDX-License-Identifier: MIT OR GPL-2.0
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include "copies.h"

#include <linux/errno.h>
#include <linux/file.h>
#include <linux/fs.h>
#include <linux/hashtable.h>
#include <linux/kprobes.h>
#include <linux/minmax.h>
#include <linux/module.h>
#include <linux/mutex.h>
#include <linux/notifier.h>
#include <linux/printk.h>
#include <linux/ptrace.h>
#include <linux/rculist.h>
#include <linux/sched.h>
#include <linux/slab.h>
#include <linux/spinlock.h>
#include <linux/string.h>
#include <linux/uaccess.h>
#include <linux/workqueue.h>

#include "../core/core.h"
#include "../core/layouts.h"
#include "driver_call.h"
#include "owners.h"

#define DRIVER "nvidia"
/*
 * NV_STATUS, of nvstatuscodes.h in 515.43.04 to 595.45.04: if rm_ioctl returns anything but 0, the call ends with
 * EINVAL.
 */
#define INVALID_ADDRESS 0x1E
#define INVALID_ARGUMENT 0x1F

/* A call that the driver is working on. Looked up under RCU, as passages are: only its own task follows `call`. */
struct copy {
	struct hlist_node node;
	struct task_struct *task;
	struct core *core;
	struct core_file *(*find)(const struct file *file, const struct core *core);
	struct core_call *call;
	bool is_same; /* it was compared: the probe lets it through */
	bool is_looking; /* the driver looks up a file: the probe lets it through */
	struct file *met; /* referenced, so that it is not released before core_after */
	struct rcu_head rcu;
};

/* kernel-open/common/inc/nv.h and os-interface.h, 515.43.04 to 595.45.04. */
typedef u32 ioctl_function(void *stack, void *card, void *file, u32 number, void *parameters, u32 size);
typedef void *file_function(s32 descriptor, u8 is_control, void **file);

DEFINE_STATIC_CALL_NULL(driver_ioctl, ioctl_function);
DEFINE_STATIC_CALL_NULL(driver_file, file_function);

static DEFINE_HASHTABLE(copies, 6);
static DEFINE_SPINLOCK(copies_lock);
static DEFINE_MUTEX(probes_lock); /* of all that follows */
static struct kprobe ioctl_probe, read_probe, file_probe, dma_buf_probe;
static bool is_on, is_ending; /* no call is redirected before the first is true: the driver could not be called */
static unsigned int budget_count;

struct copy *copies_enter(struct core *core, struct core_call *call,
			  struct core_file *(*find)(const struct file *file, const struct core *core))
{
	struct copy *copy = kmalloc(sizeof(*copy), GFP_KERNEL | __GFP_NOFAIL);

	call->reply = CORE_REPLY_AWAITED;
	copy->task = current;
	copy->core = core;
	copy->find = find;
	copy->call = call;
	copy->is_same = false;
	copy->is_looking = false;
	copy->met = NULL;
	spin_lock(&copies_lock);
	hash_add_rcu(copies, &copy->node, (unsigned long)current);
	spin_unlock(&copies_lock);
	return copy;
}

void copies_leave(struct copy *copy)
{
	spin_lock(&copies_lock);
	hash_del_rcu(&copy->node);
	spin_unlock(&copies_lock);
}

void copies_put_call(struct copy *copy)
{
	if (copy->met)
		fput(copy->met);
	kfree_rcu(copy, rcu);
}

/* The current task's; it stays until that task leaves. */
static struct copy *current_copy(void)
{
	struct copy *copy, *found = NULL;

	rcu_read_lock();
	hash_for_each_possible_rcu(copies, copy, node, (unsigned long)current)
		if (copy->task == current)
			found = copy;
	rcu_read_unlock();
	return found;
}
NOKPROBE_SYMBOL(current_copy);

static bool is_as_decided(const struct core_call *call, u32 number, const void *parameters, u32 size)
{
	return call->number == number && call->size == size && call->copied_bytes <= size &&
	       !memcmp(call->copy, parameters, call->copied_bytes);
}

/*
 * Runs in place of the driver's function, for calls on managed files, which hold this module. The reply is read from
 * the driver's copy, which no other thread can write.
 */
static noinline u32 checked_ioctl(void *stack, void *card, void *file, u32 number, void *parameters, u32 size)
{
	struct copy *copy = current_copy();
	struct core_call *call = copy->call;
	u32 status;

	if (!is_as_decided(call, number, parameters, size))
		return INVALID_ARGUMENT;
	copy->is_same = true;
	status = static_call(driver_ioctl)(stack, card, file, number, parameters, size);
	copy->is_same = false;
	if (!status && call->copied_bytes) {
		memcpy(call->copy, parameters, call->copied_bytes);
		call->reply = CORE_REPLY_COPIED;
	}
	return status;
}

/* What was checked comes first in the parameters; the rest is as the caller has it now. */
static noinline u32 checked_read(void *to, const void *from, u32 size)
{
	const struct core_call *call = current_copy()->call;

	if (copy_from_user(to, (const void __user *)from, size))
		return INVALID_ADDRESS;
	memcpy(to, core_nested(call), min(size, call->nested_bytes));
	return 0;
}

/*
 * Another thread may point the descriptor at another file at any time; this is the file that the driver goes on with.
 */
static bool meet(struct copy *copy, struct file *file)
{
	if (!core_meets_file(copy->core, copy->call, copy->find(file, copy->core)))
		return false;
	if (!copy->met)
		copy->met = get_file(file);
	return true;
}

static noinline void *checked_file(s32 descriptor, u8 is_control, void **file)
{
	struct copy *copy = current_copy();
	void *found;

	copy->is_looking = true;
	found = static_call(driver_file)(descriptor, is_control, file);
	copy->is_looking = false;
	if (!found || meet(copy, *file))
		return found;
	fput(*file);
	*file = NULL;
	return NULL;
}

/* The driver's answer on a kernel without dma-bufs: nothing would tell when one releases its memory. */
static noinline u32 refuse_dma_buf(void *card, void *parameters)
{
	return STATUS_NOT_SUPPORTED;
}

static int on_ioctl(struct kprobe *unused, struct pt_regs *regs)
{
	const struct copy *copy = current_copy();

	if (!READ_ONCE(is_on) || !copy || copy->is_same)
		return 0;
	instruction_pointer_set(regs, (unsigned long)checked_ioctl);
	return 1;
}
NOKPROBE_SYMBOL(on_ioctl);

static int on_read(struct kprobe *unused, struct pt_regs *regs)
{
	const struct copy *copy = current_copy();

	if (!copy || !copy->call->nested_bytes || regs_get_kernel_argument(regs, 1) != copy->call->parameters)
		return 0;
	instruction_pointer_set(regs, (unsigned long)checked_read);
	return 1;
}
NOKPROBE_SYMBOL(on_read);

static int on_file(struct kprobe *unused, struct pt_regs *regs)
{
	const struct copy *copy = current_copy();

	if (!READ_ONCE(is_on) || !copy || copy->is_looking || !core_is_transfer(copy->call))
		return 0;
	instruction_pointer_set(regs, (unsigned long)checked_file);
	return 1;
}
NOKPROBE_SYMBOL(on_file);

/* The call comes through a card's file, which is not managed. */
static int on_dma_buf(struct kprobe *unused, struct pt_regs *regs)
{
	if (!owners_manage_current())
		return 0;
	instruction_pointer_set(regs, (unsigned long)refuse_dma_buf);
	return 1;
}
NOKPROBE_SYMBOL(on_dma_buf);

static const struct {
	struct kprobe *probe;
	const char *symbol;
	kprobe_pre_handler_t handler;
} probes[] = {
	{ &ioctl_probe, DRIVER ":rm_ioctl", on_ioctl },
	{ &read_probe, DRIVER ":os_memcpy_from_user", on_read },
	{ &file_probe, DRIVER ":nv_get_file_private", on_file },
	{ &dma_buf_probe, DRIVER ":nv_dma_buf_export", on_dma_buf },
};

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

static void take_off(size_t count)
{
	while (count--)
		unregister_kprobe(probes[count].probe);
}

/* With the lock held. */
static int start(void)
{
	size_t i;

	for (i = 0; !is_on && i < ARRAY_SIZE(probes); i++) {
		int error = put_on(probes[i].probe, probes[i].symbol, probes[i].handler);

		if (!error)
			continue;
		pr_err("no probe on %s (%d): what the driver copies and exports cannot be checked\n",
		       probes[i].symbol, error);
		take_off(i);
		return error;
	}
	if (!is_on) {
		static_call_update(driver_ioctl, (ioctl_function *)ioctl_probe.addr);
		static_call_update(driver_file, (file_function *)file_probe.addr);
	}
	WRITE_ONCE(is_on, true);
	return 0;
}

/* With the lock held. */
static void stop(void)
{
	if (is_on)
		take_off(ARRAY_SIZE(probes));
	WRITE_ONCE(is_on, false);
}

static void rest(struct work_struct *unused)
{
	mutex_lock(&probes_lock);
	if (!budget_count)
		stop();
	mutex_unlock(&probes_lock);
}

/* The task that drops the last budget may hold locks that removing a probe needs. */
static DECLARE_WORK(resting, rest);

int copies_try(void)
{
	int error;

	mutex_lock(&probes_lock);
	error = start();
	mutex_unlock(&probes_lock);
	if (!error)
		schedule_work(&resting);
	return error ? -EOPNOTSUPP : 0;
}

int copies_get(void)
{
	int error;

	mutex_lock(&probes_lock);
	error = start();
	if (!error)
		budget_count++;
	mutex_unlock(&probes_lock);
	return error ? -EIO : 0;
}

void copies_put(void)
{
	mutex_lock(&probes_lock);
	if (!--budget_count && !is_ending)
		schedule_work(&resting);
	mutex_unlock(&probes_lock);
}

bool copies_are_checked(void)
{
	return READ_ONCE(is_on);
}

/* The driver's code is freed after this, and a probe on it would stay in the kernel's lists: see guard.c. */
static int on_module(struct notifier_block *unused, unsigned long event, void *data)
{
	struct module *module = data;

	if (event != MODULE_STATE_GOING || strcmp(module->name, DRIVER))
		return NOTIFY_DONE;
	mutex_lock(&probes_lock);
	stop();
	mutex_unlock(&probes_lock);
	return NOTIFY_DONE;
}

static struct notifier_block modules = { .notifier_call = on_module, .priority = 1 };

int copies_begin(void)
{
	return register_module_notifier(&modules);
}

void copies_end(void)
{
	unregister_module_notifier(&modules);
	mutex_lock(&probes_lock);
	is_ending = true;
	stop();
	mutex_unlock(&probes_lock);
	cancel_work_sync(&resting);
}
