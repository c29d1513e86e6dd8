/* nvidia.ko: the driver's behaviour (behaviour.h) behind character devices, as the published driver registers them. */
#ifndef FAKE_NVIDIA_H
#define FAKE_NVIDIA_H

#include <linux/cdev.h>
#include <linux/fs.h>
#include <linux/mutex.h>
#include <linux/seq_file.h>
#include <linux/wait.h>

#include "behaviour.h"

enum {
	NVIDIA_MAJOR = 195,
	NVIDIA_CONTROL_MINOR = 255,
	NVIDIA_MINORS = 256,
	NVIDIA_CARD_MINORS = 248,
	NVIDIA_BRANCH_OWN_TABLE = 550,	/* D22: from here on a card's file is known by its table of operations */
};

/* The one driver of this kernel. `lock` is around every call into it, also while the caller's pages are read. */
struct nvidia {
	struct mutex lock;
	struct rm *rm;
	struct rm_card cards[RM_CARDS];
	u32 card_count;
	unsigned int branch;
	bool is_stalled;	/* as a driver that hangs: no open returns */
	wait_queue_head_t stall;
};

extern struct nvidia nvidia;
extern const struct rm_host nvidia_host;

/* host.c */
u32 os_memcpy_from_user(void *to, const void *from, u32 bytes);

struct nvidia_file;

/*
 * files.c: as the driver finds the file behind a descriptor that a parameter names (kernel-open/nvidia/nv.c, 515.43.04 to
 * 595.45.04), in a function of its own; *os_private is what keeps it.
 */
struct rm_file *nv_get_file_private(s32 descriptor, u8 is_control, void **os_private);
void nv_put_file_private(void *os_private);

/* files.c: the entry points that every branch has, and every open file. */
int nvidia_open(struct inode *inode, struct file *file);
int nvidia_close(struct inode *inode, struct file *file);
__poll_t nvidia_poll(struct file *file, struct poll_table_struct *wait);
int nvidia_mmap(struct file *file, struct vm_area_struct *area);
int nvidia_files_call(struct file *file, unsigned int command, unsigned long argument);
bool nvidia_register_control(struct nvidia_file *opened, int descriptor);
bool nvidia_is_file_of_card(const struct file *file, u32 card);
void nvidia_each_file(struct seq_file *out);

/* one_device.c (up to 535) or two_devices.c (from 545 on): how they are registered. */
extern const struct file_operations * const nvidia_own_operations;
int nvidia_devices_start(void);
void nvidia_devices_stop(void);

/* texts.c: /proc/driver/nvidia */
int nvidia_texts_start(void);
void nvidia_texts_stop(void);

/* module.c, for nvidia-uvm.ko */
struct rm_file *nvidia_uvm_open(void);
void nvidia_uvm_release(struct rm_file *file);
long nvidia_uvm_ioctl(struct rm_file *file, unsigned int command, unsigned long argument);
bool nvidia_uvm_has_pool(const struct rm_file *file, u64 base, u64 length);

#endif
