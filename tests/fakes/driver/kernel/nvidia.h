/* nvidia.ko: the driver's behaviour (behaviour.h) behind character devices, as the published driver registers them. */
#ifndef FAKE_NVIDIA_H
#define FAKE_NVIDIA_H

#include <linux/cdev.h>
#include <linux/fs.h>
#include <linux/mutex.h>
#include <linux/seq_file.h>

#include "behaviour.h"

enum {
	NVIDIA_MAJOR = 195,
	NVIDIA_CONTROL_MINOR = 255,
	NVIDIA_MINORS = 256,
	NVIDIA_CARD_MINORS = 248,	/* of the cdev that all cards share from 545 on */
	NVIDIA_BRANCH_TWO_DEVICES = 545,
	NVIDIA_BRANCH_OWN_TABLE = 550,	/* K3: from here on a card's file is known by its table of operations */
};

/* The one driver of this kernel. `lock` is around every call into it, also while the caller's pages are read. */
struct nvidia {
	struct mutex lock;
	struct rm *rm;
	struct rm_card cards[RM_CARDS];
	u32 card_count;
	unsigned int branch;
};

extern struct nvidia nvidia;
extern const struct rm_host nvidia_host;

static inline bool nvidia_is_one_device(void)
{
	return nvidia.branch < NVIDIA_BRANCH_TWO_DEVICES;
}

/* files.c: the devices, and every open file of theirs. */
int nvidia_files_start(void);
void nvidia_files_stop(void);
bool nvidia_is_control_file(const struct file *file);
bool nvidia_is_file_of_card(const struct file *file, u32 card);
void nvidia_each_file(struct seq_file *out);

/* front.c: the table of minors before them, up to 535. */
struct nvidia_module {
	struct module *owner;
	int (*open)(struct inode *inode, struct file *file);
	int (*close)(struct inode *inode, struct file *file);
	__poll_t (*poll)(struct file *file, struct poll_table_struct *wait);
	int (*ioctl)(struct inode *inode, struct file *file, unsigned int command, unsigned long argument);
	int (*mmap)(struct file *file, struct vm_area_struct *area);
};

extern const struct file_operations nv_frontend_fops;
void nvidia_front_add(u32 minor, const struct nvidia_module *module);

/* texts.c: /proc/driver/nvidia */
int nvidia_texts_start(void);
void nvidia_texts_stop(void);

/* module.c, for nvidia-uvm.ko */
struct rm_file *nvidia_uvm_open(void);
void nvidia_uvm_release(struct rm_file *file);
long nvidia_uvm_ioctl(struct rm_file *file, unsigned int command, unsigned long argument);

#endif
