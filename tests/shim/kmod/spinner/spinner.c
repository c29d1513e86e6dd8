// SPDX-License-Identifier: GPL-2.0 OR MIT
/* A kernel thread that lets others run and never sleeps voluntarily, as a driver's polling thread may do. */
#include <linux/err.h>
#include <linux/kthread.h>
#include <linux/module.h>
#include <linux/sched.h>

static struct task_struct *thread;

static int spin(void *unused)
{
	while (!kthread_should_stop())
		cond_resched();
	return 0;
}

static int __init spinner_init(void)
{
	thread = kthread_run(spin, NULL, "spinner");
	return PTR_ERR_OR_ZERO(thread);
}

static void __exit spinner_exit(void)
{
	kthread_stop(thread);
}

module_init(spinner_init);
module_exit(spinner_exit);
MODULE_DESCRIPTION("A thread that never sleeps, for tests");
MODULE_LICENSE("Dual MIT/GPL");
