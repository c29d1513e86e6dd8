/* The files of nvidiactl and nvidiaN: entry points under the names that the published driver gives them. */
#include <linux/file.h>
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
	pid_t pid;		/* of the process that opened it */
	struct file *registered;	/* a card's: the control file that stays open as long as this one */
};

static LIST_HEAD(open_files);
static DEFINE_MUTEX(open_files_lock);

static int find_card(unsigned int minor, u32 *card)
{
	for (*card = 0; *card < nvidia.card_count; ++*card)
		if (nvidia.cards[*card].minor == minor)
			return 0;
	return -ENODEV;
}

int nvidia_open(struct inode *inode, struct file *file)
{
	struct nvidia_file *opened;
	int error;

	error = wait_event_killable(nvidia.stall, !READ_ONCE(nvidia.is_stalled));
	if (error)
		return error;
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

int nvidia_close(struct inode *inode, struct file *file)
{
	struct nvidia_file *opened = file->private_data;

	mutex_lock(&open_files_lock);
	list_del(&opened->list);
	mutex_unlock(&open_files_lock);
	mutex_lock(&nvidia.lock);
	rm_release(nvidia.rm, opened->rm);
	mutex_unlock(&nvidia.lock);
	if (opened->registered)
		fput(opened->registered);
	file->private_data = NULL;
	kfree(opened);
	return 0;
}

__poll_t nvidia_poll(struct file *file, poll_table *wait)
{
	return 0;
}

int nvidia_files_call(struct file *file, unsigned int command, unsigned long argument)
{
	struct nvidia_file *opened = file->private_data;
	const struct rm_caller caller = { .host = &nvidia_host, .context = opened };
	int answer;

	mutex_lock(&nvidia.lock);
	answer = rm_call(nvidia.rm, opened->rm, &caller, command, argument);
	mutex_unlock(&nvidia.lock);
	return answer;
}

/* Registers and the card's memory: not simulated here. */
int nvidia_mmap(struct file *file, struct vm_area_struct *area)
{
	return -EINVAL;
}

/* D23: by its numbers, whatever table of operations it has; and it is kept until this file is closed. */
bool nvidia_register_control(struct nvidia_file *opened, int descriptor)
{
	struct file *file = fget(descriptor);
	dev_t device;

	if (!file)
		return false;
	device = file_inode(file)->i_rdev;
	if (MAJOR(device) == NVIDIA_MAJOR && MINOR(device) == NVIDIA_CONTROL_MINOR && file->private_data) {
		opened->registered = file;
		return true;
	}
	fput(file);
	return false;
}

noinline struct rm_file *nv_get_file_private(s32 descriptor, u8 is_control, void **os_private)
{
	struct file *file = fget(descriptor);
	const struct nvidia_file *opened;
	dev_t device;

	if (!file)
		return NULL;
	device = file_inode(file)->i_rdev;
	if (MAJOR(device) != NVIDIA_MAJOR || is_control != (MINOR(device) == NVIDIA_CONTROL_MINOR) || !file->private_data) {
		fput(file);
		return NULL;
	}
	opened = file->private_data;
	*os_private = file;
	return opened->rm;
}

void nv_put_file_private(void *os_private)
{
	fput(os_private);
}

/* D22: by its table from 550 on, by its number before; in both by what the driver keeps with the file. */
bool nvidia_is_file_of_card(const struct file *file, u32 card)
{
	const struct nvidia_file *opened;

	if (nvidia.branch >= NVIDIA_BRANCH_OWN_TABLE && file->f_op != nvidia_own_operations)
		return false;
	if (MAJOR(file_inode(file)->i_rdev) != NVIDIA_MAJOR)
		return false;
	opened = file->private_data;
	return opened && !opened->is_control && opened->card == card;
}

void nvidia_each_file(struct seq_file *out)
{
	const struct nvidia_file *opened;

	mutex_lock(&open_files_lock);
	list_for_each_entry(opened, &open_files, list) {
		if (opened->is_control)
			seq_puts(out, "nvidiactl");
		else
			seq_printf(out, "nvidia%u", nvidia.cards[opened->card].minor);
		seq_printf(out, " %d %s\n", opened->pid, opened->file->f_op == nvidia_own_operations ? "own" : "other");
	}
	mutex_unlock(&open_files_lock);
}
