/* SPDX-License-Identifier: MIT OR GPL-2.0 */
/*
 * Marks a task that calls a function of the driver's from here, so that the probe on that function lets it through.
 * The return address would show that too, but tracers put their own there, and then each call would be redirected
 * again.
 */
#ifndef PASSAGE_H
#define PASSAGE_H

#include <linux/types.h>

struct passage;

/* Sleeps; never fails. Pass what it returns to passage_leave. */
struct passage *passage_enter(const void *to);
void passage_leave(struct passage *passage);
/* For the current task, in a probe's handler. */
bool passage_is_open(const void *to);

#endif
