/* SPDX-License-Identifier: MIT OR GPL-2.0 */
/*
 * Who is in this module's code without a reference on it: openers under way, and callers that a probe sent here.
 * Unloading waits for them, and so does whoever takes back what sent them.
 */
#ifndef PRESENCE_H
#define PRESENCE_H

int presence_enter(void);
void presence_leave(int index);

/*
 * Waits for everybody who was on the way in, is inside, or is on the way out. What sent them here has been taken back
 * before. Sleeps.
 */
void presence_wait(void);

#endif
