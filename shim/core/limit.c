// SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0
#include "limit.h"

void limit_join(struct limit *limit, struct limit_share *share, int32_t pid)
{
	*share = (struct limit_share){ .limit = limit, .pid = pid, .next = limit->first };
	if (share->next)
		share->next->previous = share;
	limit->first = share;
}

void limit_leave(struct limit_share *share)
{
	limit_uncharge(share, share->used_bytes);
	if (share->next)
		share->next->previous = share->previous;
	if (share->previous)
		share->previous->next = share->next;
	else
		share->limit->first = share->next;
}

bool limit_try_charge(struct limit_share *share, uint64_t bytes)
{
	struct limit *limit = share->limit;

	if (limit->used_bytes > limit->limit_bytes || bytes > limit->limit_bytes - limit->used_bytes) {
		limit->refused++;
		return false;
	}
	share->used_bytes += bytes;
	limit->used_bytes += bytes;
	return true;
}

void limit_settle_charge(struct limit_share *share, uint64_t more_bytes)
{
	struct limit *limit = share->limit;

	share->used_bytes += more_bytes;
	limit->used_bytes += more_bytes;
	if (limit->used_bytes > limit->peak_bytes)
		limit->peak_bytes = limit->used_bytes;
}

void limit_uncharge(struct limit_share *share, uint64_t bytes)
{
	/* Never uncharges more than is used: an underflow would be a limit of exabytes. */
	if (bytes > share->used_bytes)
		bytes = share->used_bytes;
	share->used_bytes -= bytes;
	share->limit->used_bytes -= bytes;
}

void limit_resize(struct limit *limit, uint64_t limit_bytes)
{
	limit->limit_bytes = limit_bytes;
}
