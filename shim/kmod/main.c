// SPDX-License-Identifier: MIT OR GPL-2.0
/* Memory limits for containers, held between them and the NVIDIA driver: see docs/kmod.md. */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/module.h>

#include "attach.h"
#include "commands.h"
#include "copies.h"
#include "duplicates.h"
#include "guard.h"
#include "inflight.h"
#include "proc.h"

static char *control = "/dev/nvidiactl";
module_param(control, charp, 0444);
MODULE_PARM_DESC(control, "The driver's control node (initially /dev/nvidiactl)");

static int __init vrampack_init(void)
{
	int error;

	commands_begin(control);
	error = guard_begin();
	if (error)
		return error;
	error = duplicates_begin();
	if (error)
		goto end_guard;
	error = copies_begin();
	if (error)
		goto end_duplicates;
	error = attach_begin(control);
	if (error)
		goto end_copies;
	error = proc_begin();
	if (!error)
		return 0;
	attach_end();
end_copies:
	copies_end();
end_duplicates:
	duplicates_end();
end_guard:
	guard_end();
	inflight_end();
	return error;
}

static void __exit vrampack_exit(void)
{
	/* Detach first: readers of the files may keep us waiting as long as they like. */
	commands_lock();
	attach_end();
	commands_unlock();
	guard_end();
	duplicates_end();
	copies_end();
	proc_end();
	/* Waits for tasks that release the last files, too. */
	inflight_end();
	commands_end();
}

module_init(vrampack_init);
module_exit(vrampack_exit);

MODULE_DESCRIPTION("GPU memory limits for containers, in front of the NVIDIA driver");
MODULE_AUTHOR("The vrampack authors");
MODULE_LICENSE("Dual MIT/GPL");
MODULE_VERSION(VRAMPACK_VERSION);
