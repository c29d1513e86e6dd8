// SPDX-License-Identifier: MIT OR GPL-2.0
#include "proc_file.h"

#include <linux/err.h>
#include <linux/fs.h>
#include <linux/slab.h>

#include "access.h"
#include "parse.h"

int proc_file_check_access(struct inode *inode, struct file *file, int (*may_read)(void *of))
{
	int error = file->f_mode & FMODE_WRITE ? access_check_write(file) : 0;

	if (!error && file->f_mode & FMODE_READ)
		error = may_read(pde_data(inode));
	return error;
}

int proc_file_open(struct inode *inode, struct file *file, const struct proc_file *proc_file)
{
	int error = proc_file_check_access(inode, file, proc_file->may_read);

	return error ? error : single_open(file, proc_file->show, pde_data(inode));
}

ssize_t proc_file_write(struct file *file, const char __user *from, size_t size, const struct proc_file *proc_file)
{
	int error = access_check_write(file);
	char *word;
	u64 number;

	if (error)
		return error;
	if (!proc_file->set)
		return -EACCES;
	word = parse_copy_line(from, size);
	if (IS_ERR(word))
		return PTR_ERR(word);
	error = parse_number(word, &number) ? proc_file->set(pde_data(file_inode(file)), number) : -EINVAL;
	kfree(word);
	return error ? error : size;
}
