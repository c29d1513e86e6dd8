/* SPDX-License-Identifier: MIT OR GPL-2.0 */
/* Who may use the files of /proc, beyond their modes. */
#ifndef ACCESS_H
#define ACCESS_H

struct file;

/*
 * Writing: the task that opened the file and the one that writes have CAP_SYS_ADMIN in the initial user namespace, and
 * the writer is not managed. 0 or -EPERM, which is logged.
 */
int access_check_write(const struct file *file);
/*
 * Reading about budgets: CAP_SYS_ADMIN in the initial user namespace, and not managed. Managed tasks do not even read
 * about their own: removing a budget waits for its readers, and theirs could read into memory whose page never
 * comes. 0 or -EACCES.
 */
int access_check_read(void);

#endif
