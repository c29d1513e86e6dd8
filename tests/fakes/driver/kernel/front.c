/* Up to branch 535 one device has all 256 minors, and a table says whose each is: nvidia-frontend. */
#include <linux/module.h>
#include <linux/poll.h>

#include "nvidia.h"

static const struct nvidia_module *nv_minor_num_table[NVIDIA_MINORS];
static DEFINE_MUTEX(nv_module_table_lock);

void nvidia_front_add(u32 minor, const struct nvidia_module *module)
{
	nv_minor_num_table[minor] = module;
}

static const struct nvidia_module *module_of(const struct file *file)
{
	return nv_minor_num_table[iminor(file_inode(file))];
}

static noinline int nvidia_frontend_open(struct inode *inode, struct file *file)
{
	const struct nvidia_module *module;
	int error = -ENODEV;

	mutex_lock(&nv_module_table_lock);
	module = nv_minor_num_table[iminor(inode)];
	if (module && try_module_get(module->owner)) {
		error = module->open(inode, file);
		if (error)
			module_put(module->owner);
	}
	mutex_unlock(&nv_module_table_lock);
	return error;
}

static noinline int nvidia_frontend_close(struct inode *inode, struct file *file)
{
	const struct nvidia_module *module = module_of(file);
	int error = module->close(inode, file);

	module_put(module->owner);
	return error;
}

static noinline __poll_t nvidia_frontend_poll(struct file *file, poll_table *wait)
{
	return module_of(file)->poll(file, wait);
}

static noinline long nvidia_frontend_unlocked_ioctl(struct file *file, unsigned int command, unsigned long argument)
{
	return module_of(file)->ioctl(file_inode(file), file, command, argument);
}

static noinline int nvidia_frontend_mmap(struct file *file, struct vm_area_struct *area)
{
	return module_of(file)->mmap(file, area);
}

const struct file_operations nv_frontend_fops = {
	.owner = THIS_MODULE,
	.open = nvidia_frontend_open,
	.release = nvidia_frontend_close,
	.poll = nvidia_frontend_poll,
	.unlocked_ioctl = nvidia_frontend_unlocked_ioctl,
	.compat_ioctl = nvidia_frontend_unlocked_ioctl,
	.mmap = nvidia_frontend_mmap,
};
