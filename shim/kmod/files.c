// SPDX-License-Identifier: MIT OR GPL-2.0
#include "files.h"

#include <linux/atomic.h>
#include <linux/err.h>
#include <linux/fs.h>
#include <linux/module.h>
#include <linux/sched.h>
#include <linux/slab.h>
#include <linux/uaccess.h>

#include "../core/core.h"
#include "../core/layouts.h"
#include "copies.h"
#include "inflight.h"
#include "ops.h"
#include "processes.h"

struct managed_file {
	struct file_operations table;
	const struct file_operations *own; /* the driver's, and a reference on its module */
	struct budget *budget; /* the process holds it */
	struct process *process;
	struct core_file file;
};

static struct core layouts; /* used only for its layout: no object is made through it */
static atomic_t count;

int files_begin(const char *driver_version)
{
	struct core fresh = { 0 };

	if (!core_begin(&fresh, &kernel_ops, NULL, driver_version))
		return -EOPNOTSUPP;
	/* A task in files_refuse reads them while it holds its driver, so the layout is the same then. */
	if (layouts.layout != fresh.layout)
		layouts = fresh;
	budgets_reset_idle(driver_version);
	return 0;
}

int files_count(void)
{
	return atomic_read(&count);
}

static struct managed_file *managed(const struct file *file)
{
	return container_of(file->f_op, struct managed_file, table);
}

typedef long ioctl_function(struct file *file, unsigned int request, unsigned long argument);

static ioctl_function managed_ioctl;

/* A managed file of that core, which the caller keeps open. */
static struct core_file *find_core_file(const struct file *file, const struct core *core)
{
	struct managed_file *this;

	if (READ_ONCE(file->f_op)->unlocked_ioctl != managed_ioctl)
		return NULL;
	this = managed(file);
	return &this->budget->core == core ? &this->file : NULL;
}

static long decide(struct file *file, unsigned int request, unsigned long argument, ioctl_function *own)
{
	struct managed_file *this = managed(file);
	struct core_call call;
	struct copy *copy;
	long result;

	if (!core_watches(request))
		return own(file, request, argument);
	if (core_before(&this->budget->core, &this->file, &call, request, argument) == CORE_ANSWERED)
		return call.answer;
	copy = copies_enter(&this->budget->core, &call, find_core_file);
	result = own(file, request, argument);
	copies_leave(copy);
	core_after(&this->budget->core, &this->file, &call, result);
	copies_put_call(copy);
	return result;
}

static long managed_ioctl(struct file *file, unsigned int request, unsigned long argument)
{
	return decide(file, request, argument, managed(file)->own->unlocked_ioctl);
}

#ifdef CONFIG_COMPAT
static long managed_compat_ioctl(struct file *file, unsigned int request, unsigned long argument)
{
	return decide(file, request, argument, managed(file)->own->compat_ioctl);
}
#endif

/* The file gets the driver's table back, so the kernel's final put is on the driver's module, not on ours. */
static void forget(struct file *file)
{
	struct managed_file *this = managed(file);

	file->f_op = this->own;
	processes_drop_file(this->process);
	kfree(this);
	module_put(THIS_MODULE);
}

/*
 * The driver frees first: if the memory were uncharged before, another task could be granted it while it is still in
 * use. If the driver gives out the same handle again meanwhile, the new object replaces the old one in the core.
 */
static int managed_release(struct inode *inode, struct file *file)
{
	struct managed_file *this = managed(file);
	int result = this->own->release(inode, file);
	int index = inflight_enter();

	core_release(&this->budget->core, &this->file);
	atomic_dec(&count);
	forget(file);
	inflight_leave(index);
	return result;
}

static struct managed_file *new_managed(const struct file_operations *own, struct budget *budget)
{
	struct managed_file *this = kzalloc(sizeof(*this), GFP_KERNEL_ACCOUNT);
	pid_t pid = task_tgid_nr(current);

	if (!this) {
		budgets_put(budget);
		return ERR_PTR(-ENOMEM);
	}
	this->process = processes_add_file(budget, pid);
	if (IS_ERR(this->process)) {
		struct process *error = this->process;

		kfree(this);
		return ERR_CAST(error);
	}
	this->own = own;
	this->budget = budget;
	this->file.owner = this->process;
	this->file.cards = &budget->cards;
	this->file.pid = pid;
	this->table = *own;
	this->table.owner = THIS_MODULE;
	this->table.unlocked_ioctl = managed_ioctl;
#ifdef CONFIG_COMPAT
	if (own->compat_ioctl)
		this->table.compat_ioctl = managed_compat_ioctl;
#endif
	this->table.release = managed_release;
	return this;
}

int files_open(struct inode *inode, struct file *file, struct budget *budget)
{
	const struct file_operations *own = file->f_op;
	struct managed_file *this;
	int error;

	if (!try_module_get(THIS_MODULE)) {
		budgets_put(budget);
		return -ENXIO;
	}
	this = new_managed(own, budget);
	if (IS_ERR(this)) {
		module_put(THIS_MODULE);
		return PTR_ERR(this);
	}
	atomic_inc(&count);
	file->f_op = &this->table;
	error = own->open(inode, file);
	if (error) {
		atomic_dec(&count);
		forget(file);
	}
	return error;
}

static bool read_u32(u64 from, u32 *value)
{
	return !copy_from_user(value, u64_to_user_ptr(from), sizeof(*value));
}

bool files_refuse(unsigned int request, unsigned long argument, long *answer)
{
	const struct core_layout *layout = layouts.layout;
	u32 number = _IOC_NR(request), size = _IOC_SIZE(request);
	struct core_call call;
	u64 at = argument;

	if (!layout)
		return false;
	/* Unwrapped only here: the core then sees one call, whatever another thread writes meanwhile. */
	if (number == ESC_XFER_CMD) {
		if (!read_u32(argument + layout->wrapper_number, &number) ||
		    !read_u32(argument + layout->wrapper_size, &size) ||
		    copy_from_user(&at, u64_to_user_ptr((u64)argument + layout->wrapper_pointer), sizeof(at)))
			return false;
	}
	if (number != ESC_ALLOC_MEMORY || size != layout->window_bytes)
		return false;
	if (core_before(&layouts, NULL, &call, _IOC(0, 0, ESC_ALLOC_MEMORY, size), at) != CORE_ANSWERED)
		return false;
	*answer = call.answer;
	return true;
}
