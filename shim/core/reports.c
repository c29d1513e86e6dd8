// SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0
/*
 * Rewrites the driver's reports of a card's memory for the container: its limit is the size, and only its own use
 * counts.
 *
 *      total     min(the driver's, limit)
 *      free      min(the driver's, limit - used)
 *      reserved  total - free - used, where the card is fuller than the container: so used = total - free - reserved
 */
#include "internal.h"

#define AT_ONCE 32 /* entries; a kernel's stack is small */

struct view {
	uint64_t total, free, reserved; /* KiB */
	uint64_t limit, left;
};

enum report_meaning { REPORT_OTHER, REPORT_IS_TOTAL, REPORT_IS_FREE, REPORT_IS_RESERVED };

static enum report_meaning meaning_of(uint32_t index)
{
	switch (index) {
	case REPORT_RAM:
	case REPORT_TOTAL_RAM:
	case REPORT_HEAP:
	case REPORT_MAPPABLE_HEAP:
	case REPORT_USABLE_RAM:
	case REPORT_PROTECTED:
		return REPORT_IS_TOTAL;
	case REPORT_HEAP_FREE:
	case REPORT_LARGEST_FREE:
	case REPORT_PROTECTED_FREE:
		return REPORT_IS_FREE;
	case REPORT_RESERVED:
		return REPORT_IS_RESERVED;
	default:
		return REPORT_OTHER;
	}
}

static uint64_t smaller(uint64_t one, uint64_t other)
{
	return one < other ? one : other;
}

static bool read_usage(struct core *core, struct core_file *file, uint32_t handle, struct core_call *call,
		       struct view *view)
{
	uint64_t limit, used;

	lock(core);
	call->card = objects_card(&core->objects, call->client, handle);
	unlock(core);
	if (!core->ops->usage(core->context, file->owner, call->card, &limit, &used))
		return false;
	view->limit = limit;
	view->left = used < limit ? limit - used : 0;
	return true;
}

/* Where the entries are and how many; a list longer than the driver takes is cut where the driver refuses it. */
static bool find_entries(const struct core *core, const struct core_call *call, uint64_t *entries, uint32_t *count)
{
	const struct core_layout *layout = core->layout;
	uint32_t most = (uint32_t)(layout->report_inline_bytes - layout->report_inline_entries) / layout->report_bytes;
	bool is_list = call->command == COMMAND_REPORT_LIST;
	uint64_t count_at = call->parameters + (is_list ? layout->report_list_count : layout->report_inline_count);

	if (!copy_in(core, count, count_at, sizeof(*count)))
		return false;
	if (*count > most)
		*count = most;
	*entries = call->parameters + layout->report_inline_entries;
	return !is_list || copy_in(core, entries, call->parameters + layout->report_list_entries, sizeof(*entries));
}

/* The first pass: the total and the free memory in the reply, from which reserved is computed. */
static void note_totals(const unsigned char *entry, uint32_t value, struct view *view)
{
	switch (load32(entry)) {
	case REPORT_RAM:
	case REPORT_TOTAL_RAM:
		view->total = smaller(value, view->limit >> 10);
		break;
	case REPORT_HEAP_FREE:
		view->free = smaller(value, view->left >> 10);
		break;
	default:
		break;
	}
}

static uint32_t rewrite_value(const unsigned char *entry, uint32_t value, const struct view *view)
{
	switch (meaning_of(load32(entry))) {
	case REPORT_IS_TOTAL:
		return (uint32_t)smaller(value, view->limit >> 10);
	case REPORT_IS_FREE:
		return (uint32_t)smaller(value, view->left >> 10);
	case REPORT_IS_RESERVED:
		return (uint32_t)smaller(view->reserved, 0xFFFFFFFFu);
	default:
		return value;
	}
}

/* One walk over the entries, to note or to rewrite. */
static bool walk(const struct core *core, uint64_t entries, uint32_t count, struct view *view, bool rewrites)
{
	uint32_t bytes = core->layout->report_bytes, data = core->layout->report_data;
	unsigned char chunk[AT_ONCE * REPORT_BYTES_MOST];

	for (uint32_t done = 0; done < count; done += AT_ONCE) {
		uint32_t some = count - done < AT_ONCE ? count - done : AT_ONCE;

		if (!copy_in(core, chunk, entries + (uint64_t)done * bytes, some * bytes))
			return false;
		for (uint32_t i = 0; i < some; i++) {
			unsigned char *entry = chunk + i * bytes;
			uint32_t value = load32(entry + data);

			if (rewrites)
				value = rewrite_value(entry, value, view);
			else
				note_totals(entry, value, view);
			__builtin_memcpy(entry + data, &value, sizeof(value));
		}
		if (rewrites && !copy_out(core, entries + (uint64_t)done * bytes, chunk, some * bytes))
			return false;
	}
	return true;
}

void call_report_after(struct core *core, struct core_file *file, struct core_call *call, long result)
{
	struct view view;
	uint64_t entries, used;
	uint32_t count;

	if (call_outcome_of(core, call, result) != CALL_HAPPENED || !read_usage(core, file, call->handle, call, &view))
		return;
	view.total = view.limit >> 10;
	view.free = view.left >> 10;
	if (!find_entries(core, call, &entries, &count) || !walk(core, entries, count, &view, false))
		return;
	used = (view.limit >> 10) - (view.left >> 10);
	view.reserved = view.total > view.free + used ? view.total - view.free - used : 0;
	walk(core, entries, count, &view, true);
}

static void clamp(const struct core *core, uint64_t at, uint64_t most)
{
	uint64_t value;

	if (copy_in(core, &value, at, sizeof(value)) && value > most)
		copy_out(core, at, &most, sizeof(most));
}

void call_heap_report_after(struct core *core, struct core_file *file, struct core_call *call, long result)
{
	const struct core_layout *layout = core->layout;
	struct view view;

	if (call_outcome_of(core, call, result) != CALL_HAPPENED || !read_usage(core, file, call->parent, call, &view))
		return;
	clamp(core, call->at + layout->heap_total, view.limit);
	clamp(core, call->at + layout->heap_free, view.left);
	clamp(core, call->at + layout->heap_report_largest, view.left);
}
