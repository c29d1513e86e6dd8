/* Up to branch 535: one device, nvidia-frontend, has all 256 minors, and a table says whose each is. */
#include <linux/module.h>
#include <linux/poll.h>

#include "nvidia.h"

struct nvidia_module {
	struct module *owner;
	int (*open)(struct inode *inode, struct file *file);
	int (*close)(struct inode *inode, struct file *file);
	__poll_t (*poll)(struct file *file, poll_table *wait);
	int (*ioctl)(struct inode *inode, struct file *file, unsigned int command, unsigned long argument);
	int (*mmap)(struct file *file, struct vm_area_struct *area);
};

static const struct nvidia_module *nv_minor_num_table[NVIDIA_MINORS];
static DEFINE_MUTEX(nv_module_table_lock);

static noinline int nvidia_ioctl(struct inode *inode, struct file *file, unsigned int command, unsigned long argument)
{
	return nvidia_files_call(file, command, argument);
}

static const struct nvidia_module nv_module = {
	.owner = THIS_MODULE,
	.open = nvidia_open,
	.close = nvidia_close,
	.poll = nvidia_poll,
	.ioctl = nvidia_ioctl,
	.mmap = nvidia_mmap,
};

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

static noinline int nvidia_frontend_ioctl(struct inode *inode, struct file *file, unsigned int command,
					  unsigned long argument)
{
	return module_of(file)->ioctl(inode, file, command, argument);
}

static noinline long nvidia_frontend_unlocked_ioctl(struct file *file, unsigned int command, unsigned long argument)
{
	return nvidia_frontend_ioctl(file_inode(file), file, command, argument);
}

static noinline long nvidia_frontend_compat_ioctl(struct file *file, unsigned int command, unsigned long argument)
{
	return nvidia_frontend_ioctl(file_inode(file), file, command, argument);
}

static noinline int nvidia_frontend_mmap(struct file *file, struct vm_area_struct *area)
{
	return module_of(file)->mmap(file, area);
}

static struct file_operations nv_frontend_fops = {
	.owner = THIS_MODULE,
	.open = nvidia_frontend_open,
	.release = nvidia_frontend_close,
	.poll = nvidia_frontend_poll,
	.unlocked_ioctl = nvidia_frontend_unlocked_ioctl,
	.compat_ioctl = nvidia_frontend_compat_ioctl,
	.mmap = nvidia_frontend_mmap,
};

const struct file_operations * const nvidia_own_operations = &nv_frontend_fops;

int nvidia_devices_start(void)
{
	u32 i;

	for (i = 0; i < nvidia.card_count; i++)
		nv_minor_num_table[nvidia.cards[i].minor] = &nv_module;
	nv_minor_num_table[NVIDIA_CONTROL_MINOR] = &nv_module;
	return register_chrdev(NVIDIA_MAJOR, "nvidia-frontend", &nv_frontend_fops);
}

void nvidia_devices_stop(void)
{
	unregister_chrdev(NVIDIA_MAJOR, "nvidia-frontend");
}
