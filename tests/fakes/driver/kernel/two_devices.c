/* From branch 545 on: one device for all cards, and nvidiactl's own. */
#include <linux/module.h>

#include "nvidia.h"

static struct cdev nv_linux_devices_cdev, nv_linux_control_device_cdev;

static noinline long nvidia_unlocked_ioctl(struct file *file, unsigned int command, unsigned long argument)
{
	return nvidia_files_call(file, command, argument);
}

static struct file_operations nvidia_fops = {
	.owner = THIS_MODULE,
	.open = nvidia_open,
	.release = nvidia_close,
	.poll = nvidia_poll,
	.unlocked_ioctl = nvidia_unlocked_ioctl,
	.compat_ioctl = nvidia_unlocked_ioctl,
	.mmap = nvidia_mmap,
};

const struct file_operations * const nvidia_own_operations = &nvidia_fops;

static int nv_register_chrdev(struct cdev *cdev, unsigned int minor, unsigned int count, const char *name)
{
	dev_t device = MKDEV(NVIDIA_MAJOR, minor);
	int error = register_chrdev_region(device, count, name);

	if (error)
		return error;
	cdev_init(cdev, &nvidia_fops);
	cdev->owner = THIS_MODULE;
	error = cdev_add(cdev, device, count);
	if (error)
		unregister_chrdev_region(device, count);
	return error;
}

static void nv_unregister_chrdev(struct cdev *cdev, unsigned int minor, unsigned int count)
{
	cdev_del(cdev);
	unregister_chrdev_region(MKDEV(NVIDIA_MAJOR, minor), count);
}

int nvidia_devices_start(void)
{
	int error = nv_register_chrdev(&nv_linux_devices_cdev, 0, NVIDIA_CARD_MINORS, "nvidia");

	if (error)
		return error;
	error = nv_register_chrdev(&nv_linux_control_device_cdev, NVIDIA_CONTROL_MINOR, 1, "nvidiactl");
	if (error)
		nv_unregister_chrdev(&nv_linux_devices_cdev, 0, NVIDIA_CARD_MINORS);
	return error;
}

void nvidia_devices_stop(void)
{
	nv_unregister_chrdev(&nv_linux_control_device_cdev, NVIDIA_CONTROL_MINOR, 1);
	nv_unregister_chrdev(&nv_linux_devices_cdev, 0, NVIDIA_CARD_MINORS);
}
