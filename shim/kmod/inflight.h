/* SPDX-License-Identifier: MIT OR GPL-2.0 */
/*
 * Counts the tasks in this module's code without a reference on it: openers, and the release of the last file.
 * Unloading waits for them, and so does detaching. None of them waits here for what a process can withhold, such as
 * the memory of its calls.
 */
#ifndef INFLIGHT_H
#define INFLIGHT_H

/* What it returns belongs to inflight_leave. */
int inflight_enter(void);
void inflight_leave(int index);

/* Waits for all tasks that are inside. Those that come later see what was changed before. */
void inflight_drain(void);
/*
 * Before this module's code goes, once no more are sent here: waits for tasks that are on the way in, inside or on the
 * way out, and for those that a probe sent here while they have no reference yet, or none any more. Sleeps, for seconds
 * where many processes run.
 */
void inflight_end(void);

#endif
