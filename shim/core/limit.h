/* SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0 */
/*
 * The budget of one container on one card, where it is kept beside the core: in the kernel module and in the tests. The
 * caller holds its own lock around every call, and owns the memory.
 */
#ifndef LIMIT_H
#define LIMIT_H

#include "core.h"

struct limit {
	uint64_t limit_bytes;
	uint64_t used_bytes, peak_bytes;
	uint64_t refused; /* how often there was no room */
	struct limit_share *first;
};

/* What one process uses of it. */
struct limit_share {
	struct limit *limit;
	int32_t pid;
	uint64_t used_bytes;
	struct limit_share *next, *previous;
};

void limit_join(struct limit *limit, struct limit_share *share, int32_t pid);
/* Uncharges what it still uses. */
void limit_leave(struct limit_share *share);

bool limit_try_charge(struct limit_share *share, uint64_t bytes);
/*
 * What was charged is in use, and this much more, which counts even above the limit. The peak counts only what is in
 * use.
 */
void limit_settle_charge(struct limit_share *share, uint64_t more_bytes);
void limit_uncharge(struct limit_share *share, uint64_t bytes);

/* At once, while in use. Below what is used: nothing more is charged until enough has been uncharged. */
void limit_resize(struct limit *limit, uint64_t limit_bytes);

#endif
