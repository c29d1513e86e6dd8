/* SPDX-License-Identifier: MIT OR GPL-2.0 */
/*
 * Managed memory takes the card's memory without any call that could be counted, so mappings of nvidia-uvm are refused
 * to managed tasks: by a probe on `uvm_mmap_entry`, since that driver knows its files by their table.
 */
#ifndef GUARD_H
#define GUARD_H

enum guard_state { GUARD_ABSENT, GUARD_ON, GUARD_MISSING };

/* From now on, whenever that driver's module comes and goes. While there are budgets it does not come unguarded. */
int guard_begin(void);
/* inflight_end comes after it. */
void guard_end(void);
/* Absent: that module is not loaded. Missing: it is, and cannot be guarded. */
enum guard_state guard_state(void);
/* Tries again, unless it is on: a driver that was just coming or going cannot be told from one that is not there. */
void guard_retry(void);

#endif
