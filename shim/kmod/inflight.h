/* SPDX-License-Identifier: MIT OR GPL-2.0 */
/*
 * Who is in this module's code without a reference on it: openers under way, and who releases the last file. Unloading
 * waits for them, and so does whoever takes back what sends openers. None of them waits here for what a process can
 * withhold, as the memory of its calls.
 */
#ifndef INFLIGHT_H
#define INFLIGHT_H

/* What it returns belongs to inflight_leave. */
int inflight_enter(void);
void inflight_leave(int index);

/*
 * Waits for everybody who was on the way in or is inside, when what sends them here has been taken back: what they use
 * may change then. Sleeps, for seconds where many processes run.
 */
void inflight_drain(void);
/*
 * After that, before this module's code goes: waits for those who are inside or on the way out, and for those whom a
 * probe sent here while they have no reference yet, or none any more.
 */
void inflight_end(void);

#endif
