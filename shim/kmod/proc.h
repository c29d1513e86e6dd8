/* SPDX-License-Identifier: MIT OR GPL-2.0 */
/* /proc/cgpu_km: what is said to the operator and the agent, and what they say. */
#ifndef PROC_H
#define PROC_H

/* 0 or -ENOMEM. */
int proc_begin(void);
/* Waits for those who are reading or writing. */
void proc_end(void);

#endif
