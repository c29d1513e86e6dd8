/* SPDX-License-Identifier: MIT OR GPL-2.0 */
/*
 * The driver copies a call's parameters after we have, and another thread may change them in between. Its copy passes
 * through two of its functions, and probes on them compare it with what was checked:
 *
 *      rm_ioctl              gets the struct: one that differs is refused; afterwards the reply is taken from there
 *      os_memcpy_from_user   reads what the struct points to: it gets what was checked, whatever is there now
 *
 * Exports and imports name an open file by its descriptor, which another thread may exchange as well:
 *
 *      nv_get_file_private   finds the file: the core is told of this one
 *      nv_dma_buf_export     is refused to managed tasks
 *
 * The probes are set while there is a budget. Calls of other tasks hit the first two as well.
 */
#ifndef COPIES_H
#define COPIES_H

#include <linux/types.h>

struct copy;
struct core;
struct core_call;
struct core_file;
struct file;

/* Watches for the driver being unloaded from now on; sets no probe yet. */
int copies_begin(void);
/* Called when no file is managed, before inflight_end. */
void copies_end(void);

/* Under the commands' lock, for a driver that was just found: can it be probed? If not, -EOPNOTSUPP. */
int copies_try(void);
/* Keeps the probes set for the life of a budget; or -EIO. */
int copies_get(void);
void copies_put(void);
bool copies_are_checked(void);

/*
 * Around the driver's part of a call. Sleeps; never fails. The call stays where it is until copies_leave, and a file
 * that it has met is kept until copies_put_call, which comes after core_after. `find` returns the core's side of an
 * open file, or NULL.
 */
struct copy *copies_enter(struct core *core, struct core_call *call,
			  struct core_file *(*find)(const struct file *file, const struct core *core));
void copies_leave(struct copy *copy);
void copies_put_call(struct copy *copy);

#endif
