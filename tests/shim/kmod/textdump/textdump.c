// SPDX-License-Identifier: GPL-2.0 OR MIT
/* Writes the code at an address, as it is in memory now, to the kernel's log. Never stays loaded. */
#include <linux/kernel.h>
#include <linux/module.h>
#include <linux/printk.h>

#define LINE 32

static unsigned long at;
module_param(at, ulong, 0);
static unsigned int size;
module_param(size, uint, 0);

static int __init textdump_init(void)
{
	unsigned int done;

	for (done = 0; done < size; done += LINE)
		pr_info("textdump %lx %*phN\n", at + done, (int)min_t(unsigned int, LINE, size - done),
			(const u8 *)at + done);
	return -ECANCELED;
}

module_init(textdump_init);
MODULE_DESCRIPTION("The code at an address, for tests");
MODULE_LICENSE("Dual MIT/GPL");
