/* SPDX-License-Identifier: MIT OR GPL-2.0 */
/*
 * Counts the tasks in this module's code without a reference on it: openers, and the release of the last file.
 * Unloading waits for them, and so does detaching. None of them waits here for what a process can withhold, such as
 * the memory of its calls.
 */
#ifndef INFLIGHT_H
#define INFLIGHT_H

/* Pass what it returns to inflight_leave. */
int inflight_enter(void);
void inflight_leave(int index);

/* Waits for all tasks that are inside. Those that come later see what was changed before. */
void inflight_drain(void);
/*
 * Called before this module's code is freed, once no more tasks are redirected here: waits for tasks that are
 * entering, inside or leaving, and for those that a probe redirected here and that have no reference yet, or no
 * longer. Sleeps, for seconds where many processes run.
 */
void inflight_end(void);

#endif
