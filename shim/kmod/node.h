/* SPDX-License-Identifier: MIT OR GPL-2.0 */
/*
 * One node that shows something, and may take a number:
 *
 *      NODE(name, may_read, show, set)     defines `name_node` for proc_create_data
 *
 * All get the data that the node was created with: show in seq_file's private. may_read is asked when it is opened, and
 * access_to_write both then and at every write. A set of NULL: nothing can be written.
 */
#ifndef NODE_H
#define NODE_H

#include <linux/proc_fs.h>
#include <linux/seq_file.h>
#include <linux/types.h>

struct node {
	int (*may_read)(void *of);
	int (*show)(struct seq_file *to, void *unused);
	int (*set)(void *of, u64 number);
};

/* Before a node is opened: does who opens it have the right to what he opens it for? 0, -EACCES or -EPERM. */
int node_allow(struct inode *inode, struct file *file, int (*may_read)(void *of));
int node_open(struct inode *inode, struct file *file, const struct node *node);
ssize_t node_write(struct file *file, const char __user *from, size_t size, const struct node *node);

#define NODE(name, reads, shows, sets) \
	static const struct node name##_of = { .may_read = reads, .show = shows, .set = sets }; \
	static int name##_open(struct inode *inode, struct file *file) \
	{ \
		return node_open(inode, file, &name##_of); \
	} \
	static ssize_t name##_write(struct file *file, const char __user *from, size_t size, loff_t *at) \
	{ \
		return node_write(file, from, size, &name##_of); \
	} \
	static const struct proc_ops name##_node = { \
		.proc_open = name##_open, \
		.proc_read = seq_read, \
		.proc_lseek = seq_lseek, \
		.proc_write = name##_write, \
		.proc_release = single_release, \
	}

#endif
