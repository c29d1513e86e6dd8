/* SPDX-License-Identifier: MIT OR GPL-2.0 */
/*
 * The cards' own files keep the driver's table: by it the driver knows them when a device is made on them. Of their
 * calls, one gets round the limit, and only for callers with CAP_SYS_ADMIN: ALLOC_MEMORY of a window on the whole
 * card. So where a managed task may have that, a probe looks at the calls of the driver; where none does, there is
 * none.
 */
#ifndef WATCH_H
#define WATCH_H

#include <linux/types.h>

struct file;

/* Of this function of the driver's, from now on, unless it is already. Between inflight_enter and inflight_leave. */
int watch_driver(long (*own)(struct file *file, unsigned int request, unsigned long argument));
/*
 * No probe any more; inflight_end comes after it. Calls that it sent here may be under way: they hold this module, and
 * by their file the driver's.
 */
void watch_end(void);
bool watch_is_on(void);
/* May the current task have CAP_SYS_ADMIN in the initial user namespace, or get it? */
bool watch_concerns_current(void);

#endif
