/* SPDX-License-Identifier: MIT OR GPL-2.0 */
/*
 * Managed files: the driver's files that belong to a budget, from open to release, even if another task has them by
 * then. Each has a copy of the driver's table with three operations of ours in it.
 */
#ifndef FILES_H
#define FILES_H

#include <linux/types.h>

struct file;
struct inode;
struct budget;

/*
 * Finds the layouts of that driver; -EOPNOTSUPP: they are not published. Open files pin their driver, so theirs is
 * still the same.
 */
int files_begin(const char *driver_version);

/*
 * Opens a managed file, which has the driver's table and the reference that belongs to it. Takes over the reference
 * on the budget. The caller holds this module, or is between inflight_enter and inflight_leave.
 */
int files_open(struct inode *inode, struct file *file, struct budget *budget);

/*
 * Is this call to a card's own file, which is not managed, one that gets around the limit? True: the call ends with
 * *answer. The caller holds this module.
 */
bool files_refuse(unsigned int request, unsigned long argument, long *answer);

/* How many managed files are open. */
int files_count(void);

#endif
