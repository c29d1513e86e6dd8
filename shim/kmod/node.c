// SPDX-License-Identifier: MIT OR GPL-2.0
#include "node.h"

#include <linux/err.h>
#include <linux/fs.h>
#include <linux/slab.h>

#include "access.h"
#include "words.h"

int node_allow(struct inode *inode, struct file *file, int (*may_read)(void *of))
{
	int error = file->f_mode & FMODE_WRITE ? access_to_write(file) : 0;

	if (!error && file->f_mode & FMODE_READ)
		error = may_read(pde_data(inode));
	return error;
}

int node_open(struct inode *inode, struct file *file, const struct node *node)
{
	int error = node_allow(inode, file, node->may_read);

	return error ? error : single_open(file, node->show, pde_data(inode));
}

ssize_t node_write(struct file *file, const char __user *from, size_t size, const struct node *node)
{
	int error = access_to_write(file);
	char *word;
	u64 number;

	if (error)
		return error;
	if (!node->set)
		return -EACCES;
	word = words_read(from, size);
	if (IS_ERR(word))
		return PTR_ERR(word);
	error = words_are_number(word, &number) ? node->set(pde_data(file_inode(file)), number) : -EINVAL;
	kfree(word);
	return error ? error : size;
}
