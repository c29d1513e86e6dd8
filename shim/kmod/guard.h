/* SPDX-License-Identifier: MIT OR GPL-2.0 */
/*
 * Managed memory takes the card's memory without any call that could be counted, so managed tasks get none: a probe on
 * `uvm_va_range_create_mmap` refuses it, since that driver recognises its files by their table. Semaphore pools, which
 * every CUDA context maps, are ranges that exist before they are mapped, and stay possible.
 */
#ifndef GUARD_H
#define GUARD_H

enum guard_state { GUARD_ABSENT, GUARD_ON, GUARD_MISSING };

/*
 * Guards that driver from now on, whenever its module is loaded. While there are budgets it cannot be loaded
 * unguarded.
 */
int guard_begin(void);
/* inflight_end comes after it. */
void guard_end(void);
/* Absent: that module is not loaded. Missing: it is loaded, and cannot be guarded. */
enum guard_state guard_state(void);
/*
 * Tries again, unless it is guarded: a driver that was just coming or going cannot be told from one that is not
 * there.
 */
void guard_retry(void);

#endif
