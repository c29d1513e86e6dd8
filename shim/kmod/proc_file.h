/* SPDX-License-Identifier: MIT OR GPL-2.0 */
/*
 * One file of /proc that shows something, and may take a number:
 *
 *      PROC_FILE(name, may_read, show, set)     defines `name_ops` for proc_create_data
 *
 * All get the data that the file was created with; show finds it in seq_file's private. Opening for reading asks
 * may_read; opening for writing and every write ask access_check_write. With a `set` of NULL nothing can be written.
 */
#ifndef PROC_FILE_H
#define PROC_FILE_H

#include <linux/proc_fs.h>
#include <linux/seq_file.h>
#include <linux/types.h>

struct proc_file {
	int (*may_read)(void *of);
	int (*show)(struct seq_file *to, void *unused);
	int (*set)(void *of, u64 number);
};

/* Before a file is opened: may the current task open it as it asks to? 0, -EACCES or -EPERM. */
int proc_file_check_access(struct inode *inode, struct file *file, int (*may_read)(void *of));
int proc_file_open(struct inode *inode, struct file *file, const struct proc_file *proc_file);
ssize_t proc_file_write(struct file *file, const char __user *from, size_t size, const struct proc_file *proc_file);

#define PROC_FILE(name, reads, shows, sets) \
	static const struct proc_file name##_file = { .may_read = reads, .show = shows, .set = sets }; \
	static int name##_open(struct inode *inode, struct file *file) \
	{ \
		return proc_file_open(inode, file, &name##_file); \
	} \
	static ssize_t name##_write(struct file *file, const char __user *from, size_t size, loff_t *at) \
	{ \
		return proc_file_write(file, from, size, &name##_file); \
	} \
	static const struct proc_ops name##_ops = { \
		.proc_open = name##_open, \
		.proc_read = seq_read, \
		.proc_lseek = seq_lseek, \
		.proc_write = name##_write, \
		.proc_release = single_release, \
	}

#endif
