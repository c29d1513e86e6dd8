// SPDX-License-Identifier: MIT OR GPL-2.0
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include "watch.h"

#include <linux/capability.h>
#include <linux/cred.h>
#include <linux/fs.h>
#include <linux/kprobes.h>
#include <linux/module.h>
#include <linux/mutex.h>
#include <linux/printk.h>
#include <linux/ptrace.h>
#include <linux/string.h>
#include <linux/user_namespace.h>

#include "../core/layouts.h"
#include "files.h"
#include "owners.h"
#include "passage.h"

static DEFINE_MUTEX(probe_lock);
static struct kprobe probe;
static bool is_watched;
static long (*driver)(struct file *file, unsigned int request, unsigned long argument);

static long call_driver(struct file *file, unsigned int request, unsigned long argument)
{
	struct passage *passage = passage_enter(&probe);
	long result = driver(file, request, argument);

	passage_leave(passage);
	return result;
}

/*
 * Runs in place of the driver's function, for the calls that the handler redirects here. It sleeps as long as its
 * caller's memory keeps it waiting, so it holds this module, and no task waits for it. It does not sleep before it
 * takes that reference or after it drops it: inflight_end waits for those instructions.
 */
static noinline long redirected_ioctl(struct file *file, unsigned int request, unsigned long argument)
{
	long result;

	if (!try_module_get(THIS_MODULE))
		return -ENXIO;
	if (!files_refuse(request, argument, &result))
		result = call_driver(file, request, argument);
	module_put(THIS_MODULE);
	return result;
}

static int on_ioctl(struct kprobe *unused, struct pt_regs *regs)
{
	struct file *file = (struct file *)regs_get_kernel_argument(regs, 0);
	u32 number = _IOC_NR(regs_get_kernel_argument(regs, 1));

	if (number != ESC_ALLOC_MEMORY && number != ESC_XFER_CMD)
		return 0;
	if (iminor(file_inode(file)) == CONTROL_MINOR || !owners_manage_current() ||
	    passage_is_open(&probe))
		return 0;
	instruction_pointer_set(regs, (unsigned long)redirected_ioctl);
	return 1;
}
NOKPROBE_SYMBOL(on_ioctl);

/* A probe with a post handler is not optimised into a jump, which could not redirect the call. */
static void after(struct kprobe *unused, struct pt_regs *regs, unsigned long flags)
{
}
NOKPROBE_SYMBOL(after);

int watch_driver(long (*own)(struct file *file, unsigned int request, unsigned long argument))
{
	int error = 0;

	if (READ_ONCE(is_watched))
		return 0;
	mutex_lock(&probe_lock);
	if (!is_watched) {
		driver = own;
		memset(&probe, 0, sizeof(probe));
		probe.addr = (kprobe_opcode_t *)own;
		probe.pre_handler = on_ioctl;
		probe.post_handler = after;
		error = register_kprobe(&probe);
		WRITE_ONCE(is_watched, !error);
	}
	mutex_unlock(&probe_lock);
	if (error)
		pr_err_once("no probe on the driver's ioctl (%d): privileged containers with a limit cannot use the cards\n",
			    error);
	return error ? -EIO : 0;
}

void watch_end(void)
{
	mutex_lock(&probe_lock);
	if (is_watched)
		unregister_kprobe(&probe);
	WRITE_ONCE(is_watched, false);
	mutex_unlock(&probe_lock);
}

bool watch_is_on(void)
{
	return READ_ONCE(is_watched);
}

bool watch_concerns_current(void)
{
	const struct cred *cred = current_cred();

	return cred->user_ns == &init_user_ns &&
	       (cap_raised(cred->cap_effective, CAP_SYS_ADMIN) || cap_raised(cred->cap_bset, CAP_SYS_ADMIN));
}
