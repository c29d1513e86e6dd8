// SPDX-License-Identifier: GPL-2.0 OR MIT
/* Replaces the driver's operations table, as a module of another vendor would, and passes every open on. */
#include <linux/cdev.h>
#include <linux/fs.h>
#include <linux/module.h>

static const struct file_operations *before;
static struct file_operations table;
static struct cdev *cdev;

static int __init interposer_init(void)
{
	struct file *control = filp_open("/dev/nvidiactl", O_RDONLY | O_NONBLOCK, 0);

	if (IS_ERR(control))
		return (int)PTR_ERR(control);
	cdev = file_inode(control)->i_cdev;
	before = cdev->ops;
	table = *before;
	table.owner = THIS_MODULE;
	WRITE_ONCE(cdev->ops, &table);
	filp_close(control, NULL);
	return 0;
}

static void __exit interposer_exit(void)
{
	WRITE_ONCE(cdev->ops, before);
}

module_init(interposer_init);
module_exit(interposer_exit);
MODULE_DESCRIPTION("A table in the place of the driver's, for tests");
MODULE_LICENSE("Dual MIT/GPL");
