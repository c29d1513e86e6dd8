/* SPDX-License-Identifier: MIT OR GPL-2.0 */
/*
 * The commands that inst_ctl takes, one at a time:
 *
 *      add NAME cgroup=ID|pidns=PID CARD[=BYTES] [CARD[=BYTES] ..] [weight=W]
 *      deny NAME cgroup=ID CARD [CARD ..]
 *      remove NAME
 *      cards N [N ..]
 *      detach
 *      attach
 */
#ifndef COMMANDS_H
#define COMMANDS_H

#include <linux/types.h>

/* The commands' lock: what is there, attached or not, changes under it only. */
void commands_lock(void);
void commands_unlock(void);

/* The node through which the driver is found, for `attach`. */
void commands_begin(const char *control);
/* Removes every budget, once there are no files and no more commands can come. */
void commands_end(void);

/* Text is changed. 0 or what refused it, which has been logged. */
int commands_run(char *text);

/* For `add` without bytes; 0: none. */
u64 commands_default_bytes(void);
void commands_set_default_bytes(u64 bytes);

#endif
