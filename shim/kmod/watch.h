/* SPDX-License-Identifier: MIT OR GPL-2.0 */
/*
 * The cards' own files keep the driver's table, by which the driver recognises them when a device is made on them.
 * One of their calls gets around the limit, and only for callers with CAP_SYS_ADMIN: ALLOC_MEMORY of a window on the
 * whole card. So a probe looks at the driver's calls once a managed task may have that capability, and not before.
 */
#ifndef WATCH_H
#define WATCH_H

#include <linux/types.h>

/* The control node; the cards are the other minors of that major. */
#define CONTROL_MAJOR 195
#define CONTROL_MINOR 255

struct file;

/* Watches this function of the driver's from now on, if not yet watched. Between inflight_enter and inflight_leave. */
int watch_driver(long (*own)(struct file *file, unsigned int request, unsigned long argument));
/*
 * Removes the probe; inflight_end comes after it. Redirected calls may be under way: they hold this module, and
 * through their file the driver's.
 */
void watch_end(void);
bool watch_is_on(void);
/* May the current task have CAP_SYS_ADMIN in the initial user namespace, or get it? */
bool watch_concerns_current(void);

#endif
