/* SPDX-License-Identifier: MIT OR GPL-2.0 */
/* Who may touch the files of /proc, beyond their modes. */
#ifndef ACCESS_H
#define ACCESS_H

struct file;

/*
 * Writing: who opened the file and who writes both have CAP_SYS_ADMIN in the initial user namespace, and the writer is
 * nobody's. 0 or -EPERM, which is logged.
 */
int access_check_write(const struct file *file);
/*
 * Reading what tells of budgets: CAP_SYS_ADMIN in the initial user namespace, and nobody's. Not even of their own do
 * managed tasks read: who removes a budget waits for its readers, and theirs could read into memory whose page never
 * comes. 0 or -EACCES.
 */
int access_check_read(void);

#endif
