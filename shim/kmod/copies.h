/* SPDX-License-Identifier: MIT OR GPL-2.0 */
/*
 * The driver copies a call's parameters for itself, after we have: another thread may have changed them meanwhile. Its
 * copy passes through two functions of its own, and probes on them compare it with what was decided:
 *
 *      rm_ioctl              gets the struct: one that differs is refused; afterwards the reply is taken from there
 *      os_memcpy_from_user   reads what the struct points to: what was decided by is handed on, whatever is there now
 *
 * What it exports to a descriptor, or imports from one, is in an open file that another thread may exchange as well:
 *
 *      nv_get_file_private   finds the file: the core meets that one
 *      nv_dma_buf_export     is refused to managed tasks
 *
 * They stand while there is a budget. Other tasks' calls take the first two as well.
 */
#ifndef COPIES_H
#define COPIES_H

#include <linux/types.h>

struct copy;
struct core;
struct core_call;
struct core_file;
struct file;

/* From now on it is known when the driver goes; nothing is probed yet. */
int copies_begin(void);
/* No file is managed. inflight_end comes after it. */
void copies_end(void);

/* Under the commands' lock, of a driver that has just come: can it be probed? -EOPNOTSUPP. */
int copies_try(void);
/* For a budget, as long as it lives; or -EIO. */
int copies_get(void);
void copies_put(void);
bool copies_are_checked(void);

/*
 * Around the driver's part of a call. Sleeps; never fails. The call stays where it is until copies_leave, and a file
 * that it has met is kept until copies_put_call, which comes after core_after. `find` tells the core's side of an open
 * file; NULL: it has none.
 */
struct copy *copies_enter(struct core *core, struct core_call *call,
			  struct core_file *(*find)(const struct file *file, const struct core *core));
void copies_leave(struct copy *copy);
void copies_put_call(struct copy *copy);

#endif
