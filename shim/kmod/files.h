/* SPDX-License-Identifier: MIT OR GPL-2.0 */
/*
 * Managed files: the driver's files that belong to a budget, from open to release, even when another task has them by
 * then. Each has a copy of the driver's table with three names of ours in it.
 */
#ifndef FILES_H
#define FILES_H

#include <linux/types.h>

struct file;
struct inode;
struct budget;

/*
 * The layouts of that driver: -EOPNOTSUPP, they are not published. Open files hold their driver, so it is still the
 * same.
 */
int files_begin(const char *driver_version);

/*
 * Opens a managed file; its table is the driver's, with the reference that belongs to it. The budget's reference goes
 * over. The caller holds this module, or is between inflight_enter and inflight_leave.
 */
int files_open(struct inode *inode, struct file *file, struct budget *budget);

/*
 * Is this call to a card's own file, which is not managed, one that gets round the limit? True: *answer is what it
 * gets. The caller holds this module.
 */
bool files_refuse(unsigned int request, unsigned long argument, long *answer);

/* Of managed files that are open. */
int files_count(void);

#endif
