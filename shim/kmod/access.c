// SPDX-License-Identifier: MIT OR GPL-2.0
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include "access.h"

#include <linux/capability.h>
#include <linux/errno.h>
#include <linux/fs.h>
#include <linux/printk.h>
#include <linux/sched.h>
#include <linux/user_namespace.h>

#include "owners.h"

int access_check_write(const struct file *file)
{
	if (!owners_manage_current() && file_ns_capable(file, &init_user_ns, CAP_SYS_ADMIN) &&
	    capable(CAP_SYS_ADMIN))
		return 0;
	pr_notice_ratelimited("process %d may not write here\n", task_tgid_nr(current));
	return -EPERM;
}

int access_check_read(void)
{
	if (owners_manage_current() || !ns_capable_noaudit(&init_user_ns, CAP_SYS_ADMIN))
		return -EACCES;
	return 0;
}
