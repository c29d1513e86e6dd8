/* SPDX-License-Identifier: MIT OR GPL-2.0 */
/*
 * A task that is on its way to a function of the driver's from here: the probe on that function lets it through. Its
 * return address would say so too, but for tracers that put their own there, and then each call would be sent back.
 */
#ifndef PASSAGE_H
#define PASSAGE_H

#include <linux/types.h>

struct passage;

/* Sleeps; never fails. What it returns belongs to passage_leave. */
struct passage *passage_enter(const void *to);
void passage_leave(struct passage *passage);
/* Of the current task; in a probe's handler. */
bool passage_is_open(const void *to);

#endif
