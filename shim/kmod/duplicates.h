/* SPDX-License-Identifier: MIT OR GPL-2.0 */
/*
 * nvidia-uvm maps memory by a duplicate of its own, which keeps it when its handle has been freed. The driver makes and
 * frees those in two functions that it exports: probes on them keep the charge as long.
 */
#ifndef DUPLICATES_H
#define DUPLICATES_H

#include <linux/types.h>

/* From now on it is known when the driver goes; nothing is watched yet. */
int duplicates_begin(void);
/* inflight_end comes after it: what is held is given back. */
void duplicates_end(void);

/* Under the commands' lock: on the driver that is there, if there is one that has these functions. */
void duplicates_watch(void);
/* Of a driver that is held meanwhile. */
bool duplicates_are_watched(void);

#endif
