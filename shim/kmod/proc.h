/* SPDX-License-Identifier: MIT OR GPL-2.0 */
/* /proc/cgpu_km: what the operator and the agent read, and the commands that they write. */
#ifndef PROC_H
#define PROC_H

/* 0 or -ENOMEM. */
int proc_begin(void);
/* Waits for readers and writers. */
void proc_end(void);

#endif
