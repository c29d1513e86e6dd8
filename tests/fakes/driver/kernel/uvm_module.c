/*
 * nvidia-uvm.ko: a device with a major of its own, `nvidia-uvm` in /proc/devices, minor 0. Its calls are the shared uvm.c's; what
 * is about files and mappings is here. Managed memory is the kernel's: no page of it is the card's.
 */
#include <linux/file.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/uaccess.h>

#include "nvidia.h"
#include "objects.h"

enum { UVM_MM_INITIALIZE = 75, UVM_MINORS = 2, UVM_ADDRESS_IN_USE = 0x68 };

static const struct file_operations uvm_fops;
static struct cdev uvm_cdev;
static dev_t uvm_device;

static noinline int uvm_open_entry(struct inode *inode, struct file *file)
{
	file->private_data = nvidia_uvm_open();
	return file->private_data ? 0 : -ENOMEM;
}

static noinline int uvm_release_entry(struct inode *inode, struct file *file)
{
	nvidia_uvm_release(file->private_data);
	return 0;
}

/* Without the driver's lock: callers of mmap hold their own, which the driver takes below its own. */
static bool is_ready(const struct file *file)
{
	const struct rm_file *opened = file->private_data;

	return READ_ONCE(opened->is_ready);
}

/* D25: the file that is named must be one of nvidia-uvm's by its table of operations. */
static long mm_initialize(unsigned long argument)
{
	struct { s32 descriptor; u32 status; } params;
	struct file *named;

	if (copy_from_user(&params, (void __user *)argument, sizeof(params)))
		return -EFAULT;
	named = fget(params.descriptor);
	params.status = named && named->f_op == &uvm_fops && is_ready(named) ? RM_OK : RM_BAD_ARGUMENT;
	if (named)
		fput(named);
	return copy_to_user((void __user *)argument, &params, sizeof(params)) ? -EFAULT : 0;
}

static noinline long uvm_unlocked_ioctl_entry(struct file *file, unsigned int command, unsigned long argument)
{
	if (command == UVM_MM_INITIALIZE)
		return mm_initialize(argument);
	return nvidia_uvm_ioctl(file->private_data, command, argument);
}

static vm_fault_t uvm_fault(struct vm_fault *fault)
{
	fault->page = alloc_page(GFP_HIGHUSER | __GFP_ZERO);
	return fault->page ? 0 : VM_FAULT_OOM;
}

static const struct vm_operations_struct uvm_vm_ops_managed = { .fault = uvm_fault };
static const struct vm_operations_struct uvm_vm_ops_semaphore_pool = { .fault = uvm_fault };

static bool is_pool(const struct file *file, const struct vm_area_struct *area)
{
	return nvidia_uvm_has_pool(file->private_data, area->vm_start, area->vm_end - area->vm_start);
}

/* As uvm_va_range.c: every mapping is managed memory, unless the range is taken. Compiled as the published one, which is not static. */
static __attribute__((noipa)) u32 uvm_va_range_create_mmap(struct file *file, struct mm_struct *mm, struct vm_area_struct *area)
{
	if (is_pool(file, area))
		return UVM_ADDRESS_IN_USE;
	area->vm_ops = &uvm_vm_ops_managed;
	return RM_OK;
}

/* D15: shared, readable and writable, at the offset that is its address, of a file that was initialised. */
static noinline int uvm_mmap_entry(struct file *file, struct vm_area_struct *area)
{
	const unsigned long wanted = VM_SHARED | VM_READ | VM_WRITE;

	if (!is_ready(file))
		return -EBADFD;
	if (area->vm_start != area->vm_pgoff << PAGE_SHIFT || (area->vm_flags & wanted) != wanted)
		return -EINVAL;
	if (uvm_va_range_create_mmap(file, current->mm, area) == RM_OK)
		return 0;
	if (!is_pool(file, area))
		return -EADDRINUSE;
	area->vm_ops = &uvm_vm_ops_semaphore_pool;
	return 0;
}

static const struct file_operations uvm_fops = {
	.owner = THIS_MODULE,
	.open = uvm_open_entry,
	.release = uvm_release_entry,
	.mmap = uvm_mmap_entry,
	.unlocked_ioctl = uvm_unlocked_ioctl_entry,
	.compat_ioctl = uvm_unlocked_ioctl_entry,
};

static int __init uvm_init_entry(void)
{
	int error = alloc_chrdev_region(&uvm_device, 0, UVM_MINORS, "nvidia-uvm");

	if (error)
		return error;
	cdev_init(&uvm_cdev, &uvm_fops);
	uvm_cdev.owner = THIS_MODULE;
	error = cdev_add(&uvm_cdev, uvm_device, 1);
	if (error)
		unregister_chrdev_region(uvm_device, UVM_MINORS);
	return error;
}

static void __exit uvm_exit_entry(void)
{
	cdev_del(&uvm_cdev);
	unregister_chrdev_region(uvm_device, UVM_MINORS);
}

module_init(uvm_init_entry);
module_exit(uvm_exit_entry);

MODULE_DESCRIPTION("Unified memory of an NVIDIA driver without a GPU, for tests");
MODULE_LICENSE("Dual MIT/GPL");
MODULE_VERSION(NVIDIA_VERSION);
