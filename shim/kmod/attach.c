// SPDX-License-Identifier: MIT OR GPL-2.0
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include "attach.h"

#include <linux/cdev.h>
#include <linux/err.h>
#include <linux/fs.h>
#include <linux/kdev_t.h>
#include <linux/module.h>
#include <linux/printk.h>
#include <linux/sched.h>
#include <linux/smp.h>
#include <linux/string.h>
#include <linux/workqueue.h>

#include "budgets.h"
#include "copies.h"
#include "duplicates.h"
#include "files.h"
#include "guard.h"
#include "inflight.h"
#include "owners.h"
#include "watch.h"

static struct cdev *device; /* NULL: not attached */
static const struct file_operations *own; /* the driver's table */
static struct file_operations standing; /* ours, in its place */

static bool has_one_device(const struct cdev *of)
{
	return of->count > 1;
}

static int prepare_managed(const struct cdev *of)
{
	int error = guard_state() == GUARD_MISSING ? -EIO : 0;

	if (!error && !has_one_device(of) && watch_concerns_current())
		error = watch_driver(own->unlocked_ioctl);
	return error;
}

/*
 * A kernel thread that opens files for a process (io_uring before 5.12, with the process's memory or without) may do
 * so for a managed one, and nothing here can tell: so it is refused. No kernel thread opens the driver for itself,
 * except ours in find_device, before the table is replaced.
 */
static bool is_kernel_thread(void)
{
	return current->flags & PF_KTHREAD;
}

/*
 * The reference that the kernel took with our table is on the driver's module, the table's owner; from here on it
 * belongs to the driver's table. Up to 6.1 the kernel reads the table's address twice where it takes that reference:
 * whichever table it finds the second time, the module is the same.
 *
 * An opener that was on its way here while we detached is treated as if it came after that.
 *
 * The driver's own open may take long, or never end: then this module is held, and detaching does not wait for it.
 */
static int open_control(struct inode *inode, struct file *file)
{
	int index = inflight_enter();
	const struct cdev *of = READ_ONCE(device);
	struct budget *budget = of ? budgets_get_current() : NULL;
	const struct file_operations *table = own;
	bool is_held = try_module_get(THIS_MODULE);
	int error;

	file->f_op = table;
	if (budget)
		error = prepare_managed(of);
	else
		error = of && is_kernel_thread() ? -EPERM : 0;
	if (is_held)
		inflight_leave(index);
	if (!error)
		error = budget ? files_open(inode, file, budget) : table->open(inode, file);
	else if (budget)
		budgets_put(budget);
	if (is_held) {
		index = inflight_enter();
		module_put(THIS_MODULE);
	}
	inflight_leave(index);
	return error;
}

static bool is_drivers(const struct file_operations *table)
{
	struct module *owner = table->owner;

	return owner && !strcmp(owner->name, "nvidia") && within_module((unsigned long)table, owner);
}

static int check_table(const struct inode *inode, const struct file_operations *table)
{
	if (!is_drivers(table)) {
		pr_err("the device's table is not the driver's own: another module has replaced it\n");
		return -EBUSY;
	}
	if (!table->open || !table->release || !table->unlocked_ioctl || !table->owner->version) {
		pr_err("the driver's table is not one that is known\n");
		return -EOPNOTSUPP;
	}
	return 0;
}

static int replace_table(struct inode *inode)
{
	struct cdev *found = inode->i_cdev;
	const struct file_operations *table = found->ops;
	int error = check_table(inode, table);

	if (error)
		return error;
	error = files_begin(table->owner->version);
	if (error) {
		pr_err("driver %s: the layouts of its interface are not known\n", table->owner->version);
		return error;
	}
	if (!duplicates_are_watched()) {
		pr_err("no probe on the driver's functions for nvidia-uvm's duplicates\n");
		return -EOPNOTSUPP;
	}
	/* The device is open, so its module is loaded. */
	__module_get(table->owner);
	own = table;
	standing = (struct file_operations){ .owner = table->owner, .open = open_control };
	WRITE_ONCE(device, found);
	/* Everything an opener reads is set before the first can come. */
	smp_store_release(&found->ops, &standing);
	return 0;
}

static long find_device(void *node)
{
	const char *control = node;
	struct file *file;
	struct inode *inode;
	int error = -ENODEV;

	file = filp_open(control, O_RDWR | O_CLOEXEC, 0);
	if (IS_ERR(file)) {
		pr_err("%s: cannot be opened (%ld)\n", control, PTR_ERR(file));
		return -ENODEV;
	}
	inode = file_inode(file);
	if (S_ISCHR(inode->i_mode) && inode->i_cdev && inode->i_rdev == MKDEV(CONTROL_MAJOR, CONTROL_MINOR))
		error = replace_table(inode);
	else
		pr_err("%s: not the driver's control device\n", control);
	filp_close(file, NULL);
	return error;
}

/* A kernel thread looks up the path, so it is one of the host's, not of the container that sends the command. */
int attach_begin(const char *control)
{
	long error;

	if (device)
		return 0;
	if (!module_is_live(THIS_MODULE))
		return -ENODEV;
	/*
	 * Not inside find_device: setting a probe needs the lock that work_on_cpu_safe holds. Without the driver it
	 * finds nothing.
	 */
	duplicates_watch();
	error = work_on_cpu_safe(raw_smp_processor_id(), find_device, (void *)control);
	if (!error) {
		error = copies_try();
		if (error)
			attach_end();
	}
	if (!error)
		pr_info("attached to driver %s, %s\n", attach_version(),
			attach_has_one_device() ? "one device" : "two devices");
	return error;
}

void attach_end(void)
{
	if (!device)
		return;
	WRITE_ONCE(device->ops, own);
	WRITE_ONCE(device, NULL);
	inflight_drain();
	watch_end();
	module_put(own->owner);
	pr_info("detached; %d managed files are open\n", files_count());
}

bool attach_is_on(void)
{
	return device;
}

const char *attach_version(void)
{
	return own->owner->version;
}

bool attach_has_one_device(void)
{
	return has_one_device(device);
}
