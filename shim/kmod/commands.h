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

/* Budgets, and whether we are attached, change only under the commands' lock. */
void commands_lock(void);
void commands_unlock(void);

/* The node through which the driver is found, for `attach`. */
void commands_begin(const char *control);
/* Removes every budget, once there are no files and no more commands can come. */
void commands_end(void);

/* Changes the text. Returns 0, or the error, which has been logged. */
int commands_run(char *text);

/* For a card that `add` names without bytes; 0: there is no default. */
u64 commands_default_bytes(void);
void commands_set_default_bytes(u64 bytes);

#endif
