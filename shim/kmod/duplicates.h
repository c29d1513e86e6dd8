/* SPDX-License-Identifier: MIT OR GPL-2.0 */
/*
 * nvidia-uvm maps memory by a duplicate of its own, which keeps it when its handle has been freed. The driver makes and
 * frees those in two functions that it exports: probes on them keep the charge as long.
 */
#ifndef DUPLICATES_H
#define DUPLICATES_H

/* From now on it is known when the driver goes; nothing is watched yet. */
int duplicates_begin(void);
/* inflight_end comes after it: what is held is given back. */
void duplicates_end(void);

/* Under the commands' lock, when the driver is there. -EOPNOTSUPP: it has no such functions, or they take no probe. */
int duplicates_watch(void);

#endif
