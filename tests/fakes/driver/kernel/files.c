/* The devices nvidiactl and nvidiaN: entry points under the names that the published driver gives them. */
#include <linux/list.h>
#include <linux/module.h>
#include <linux/poll.h>
#include <linux/sched.h>
#include <linux/slab.h>

#include "nvidia.h"

struct nvidia_file {
	struct list_head list;
	struct file *file;
	struct rm_file *rm;
	bool is_control;
	u32 card;
	pid_t pid;		/* of who opened it */
};

static LIST_HEAD(open_files);
static DEFINE_MUTEX(open_files_lock);
static struct cdev nv_linux_devices_cdev, nv_linux_control_device_cdev;

static int find_card(unsigned int minor, u32 *card)
{
	for (*card = 0; *card < nvidia.card_count; ++*card)
		if (nvidia.cards[*card].minor == minor)
			return 0;
	return -ENODEV;
}

static noinline int nvidia_open(struct inode *inode, struct file *file)
{
	struct nvidia_file *opened;
	int error = 0;

	opened = kzalloc(sizeof(*opened), GFP_KERNEL);
	if (!opened)
		return -ENOMEM;
	opened->file = file;
	opened->pid = task_tgid_nr(current);
	opened->is_control = iminor(inode) == NVIDIA_CONTROL_MINOR;
	if (!opened->is_control)
		error = find_card(iminor(inode), &opened->card);
	if (error)
		goto give_file;
	mutex_lock(&nvidia.lock);
	opened->rm = rm_open(nvidia.rm, opened->is_control ? RM_CONTROL : RM_CARD, opened->card);
	mutex_unlock(&nvidia.lock);
	error = -ENOMEM;
	if (!opened->rm)
		goto give_file;
	file->private_data = opened;
	mutex_lock(&open_files_lock);
	list_add_tail(&opened->list, &open_files);
	mutex_unlock(&open_files_lock);
	return 0;
give_file:
	kfree(opened);
	return error;
}

static noinline int nvidia_close(struct inode *inode, struct file *file)
{
	struct nvidia_file *opened = file->private_data;

	mutex_lock(&open_files_lock);
	list_del(&opened->list);
	mutex_unlock(&open_files_lock);
	mutex_lock(&nvidia.lock);
	rm_release(nvidia.rm, opened->rm);
	mutex_unlock(&nvidia.lock);
	file->private_data = NULL;
	kfree(opened);
	return 0;
}

static noinline __poll_t nvidia_poll(struct file *file, poll_table *wait)
{
	return 0;
}

static noinline __noclone int nvidia_ioctl(struct inode *inode, struct file *file, unsigned int command,
					   unsigned long argument)
{
	const struct nvidia_file *opened = file->private_data;
	const struct rm_caller caller = { .host = &nvidia_host };
	int answer;

	mutex_lock(&nvidia.lock);
	answer = rm_ioctl(nvidia.rm, opened->rm, &caller, command, argument);
	mutex_unlock(&nvidia.lock);
	return answer;
}

static noinline long nvidia_unlocked_ioctl(struct file *file, unsigned int command, unsigned long argument)
{
	return nvidia_ioctl(file_inode(file), file, command, argument);
}

/* Registers and the card's memory: nothing that is played here. */
static noinline int nvidia_mmap(struct file *file, struct vm_area_struct *area)
{
	return -EINVAL;
}

static const struct file_operations nvidia_fops = {
	.owner = THIS_MODULE,
	.open = nvidia_open,
	.release = nvidia_close,
	.poll = nvidia_poll,
	.unlocked_ioctl = nvidia_unlocked_ioctl,
	.compat_ioctl = nvidia_unlocked_ioctl,
	.mmap = nvidia_mmap,
};

static const struct nvidia_module nv_module = {
	.owner = THIS_MODULE,
	.open = nvidia_open,
	.close = nvidia_close,
	.poll = nvidia_poll,
	.ioctl = nvidia_ioctl,
	.mmap = nvidia_mmap,
};

bool nvidia_is_control_file(const struct file *file)
{
	dev_t device = file_inode(file)->i_rdev;

	return MAJOR(device) == NVIDIA_MAJOR && MINOR(device) == NVIDIA_CONTROL_MINOR;
}

/* K3: by its table from 550 on, by its number before; in both by what the driver keeps with the file. */
bool nvidia_is_file_of_card(const struct file *file, u32 card)
{
	const struct nvidia_file *opened;

	if (nvidia.branch >= NVIDIA_BRANCH_OWN_TABLE && file->f_op != &nvidia_fops)
		return false;
	if (MAJOR(file_inode(file)->i_rdev) != NVIDIA_MAJOR)
		return false;
	opened = file->private_data;
	return opened && !opened->is_control && opened->card == card;
}

void nvidia_each_file(struct seq_file *out)
{
	const struct file_operations *own = nvidia_is_one_device() ? &nv_frontend_fops : &nvidia_fops;
	const struct nvidia_file *opened;

	mutex_lock(&open_files_lock);
	list_for_each_entry(opened, &open_files, list) {
		if (opened->is_control)
			seq_puts(out, "nvidiactl");
		else
			seq_printf(out, "nvidia%u", nvidia.cards[opened->card].minor);
		seq_printf(out, " %d %s\n", opened->pid, opened->file->f_op == own ? "own" : "other");
	}
	mutex_unlock(&open_files_lock);
}

static int register_device(struct cdev *cdev, unsigned int minor, unsigned int count, const char *name)
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

static void unregister_device(struct cdev *cdev, unsigned int minor, unsigned int count)
{
	cdev_del(cdev);
	unregister_chrdev_region(MKDEV(NVIDIA_MAJOR, minor), count);
}

static int start_front(void)
{
	u32 i;

	for (i = 0; i < nvidia.card_count; i++)
		nvidia_front_add(nvidia.cards[i].minor, &nv_module);
	nvidia_front_add(NVIDIA_CONTROL_MINOR, &nv_module);
	return register_chrdev(NVIDIA_MAJOR, "nvidia-frontend", &nv_frontend_fops);
}

int nvidia_files_start(void)
{
	int error;

	if (nvidia_is_one_device())
		return start_front();
	error = register_device(&nv_linux_devices_cdev, 0, NVIDIA_CARD_MINORS, "nvidia");
	if (error)
		return error;
	error = register_device(&nv_linux_control_device_cdev, NVIDIA_CONTROL_MINOR, 1, "nvidiactl");
	if (error)
		unregister_device(&nv_linux_devices_cdev, 0, NVIDIA_CARD_MINORS);
	return error;
}

void nvidia_files_stop(void)
{
	if (nvidia_is_one_device()) {
		unregister_chrdev(NVIDIA_MAJOR, "nvidia-frontend");
		return;
	}
	unregister_device(&nv_linux_control_device_cdev, NVIDIA_CONTROL_MINOR, 1);
	unregister_device(&nv_linux_devices_cdev, 0, NVIDIA_CARD_MINORS);
}
