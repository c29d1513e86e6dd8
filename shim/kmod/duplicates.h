/* SPDX-License-Identifier: MIT OR GPL-2.0 */
/*
 * nvidia-uvm maps memory through a duplicate of its own, which keeps the memory after its handle was freed. The
 * driver makes and frees these in two exported functions: probes on them keep the charge for as long.
 */
#ifndef DUPLICATES_H
#define DUPLICATES_H

#include <linux/types.h>

/* Watches for the driver being unloaded from now on; sets no probe yet. */
int duplicates_begin(void);
/* Uncharges what is held. inflight_end comes after it. */
void duplicates_end(void);

/* Under the commands' lock: sets the probes, if a driver with these functions is loaded. */
void duplicates_watch(void);
/* The caller holds the driver. */
bool duplicates_are_watched(void);

#endif
