// SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0
/* The calls that allocate: RM_ALLOC in both shapes, VID_HEAP_CONTROL, and the calls that would get around them. */
#include "internal.h"

#define PAGE_64_KIB ((uint64_t)64 << 10)
#define PAGE_256_KIB ((uint64_t)256 << 10)
#define PAGE_2_MIB ((uint64_t)2 << 20)
#define PAGE_512_MIB ((uint64_t)512 << 20)
#define PAGE_256_GIB ((uint64_t)256 << 30)
/* A charge that was corrected is at most this, more than any card has: a million of them cannot make a sum overflow. */
#define MOST_CORRECTED ((uint64_t)16 << 40)
#define CLASS_EXTENDED 0x42 /* memory of other hosts' GPUs; a class of the driver's own sources, not of its interface */

/* What a request says about its memory. Both ways to allocate have these fields. */
struct request {
	uint64_t bytes;
	uint32_t flags, first, second; /* the attributes */
};

/* Of VID_HEAP_CONTROL's attributes: bits 26:25 are the location, 0 is video memory; bit 24 of the second is EGM. */
#define ATTRIBUTE_LOCATION (3u << 25)
#define ATTRIBUTE2_EGM (1u << 24)

/*
 * Other ways to get memory: a window on the whole card, lists of pages, other hosts' memory, compression tags; and
 * objects for which the driver duplicates memory into a client of its own (sem_surf.c, event_buffer.c, fla_mem.c,
 * mem_export.c of 580.65.06), so that freeing its handle frees nothing. No CUDA program makes them.
 */
static bool is_refused_class(uint32_t class)
{
	switch (class) {
	case CLASS_EXTENDED:
	case CLASS_LIST_FBMEM:
	case CLASS_LIST_OBJECT:
	case CLASS_HW_RESOURCES:
	case CLASS_LOCAL_PHYSICAL:
	case CLASS_SEMAPHORE_SURFACE:
	case CLASS_EVENT_BUFFER:
	case CLASS_FLA:
	case CLASS_FABRIC_EXPORT:
		return true;
	default:
		return false;
	}
}

/* What would overflow 64 bits is more than any card has. */
static uint64_t whole_pages(uint64_t bytes, uint64_t page)
{
	return bytes > ~(uint64_t)0 - page ? ~(uint64_t)0 : (bytes + page - 1) & ~(page - 1);
}

/*
 * As memmgrDeterminePageSize and dmaNvos32ToPageSizeAttr choose (mem_mgr.c, mem.c of 515.43.04 to 595.45.04). The
 * driver's allocator has no pages below 64 KiB. What does not exist on a card or in a branch is refused by the driver.
 */
static uint64_t page_of(const struct request *request)
{
	switch (request->first >> ATTRIBUTE_PAGE_SHIFT & 3) {
	case PAGES_BY_SIZE:
		return request->bytes >= PAGE_2_MIB ? PAGE_2_MIB : PAGE_64_KIB;
	case PAGES_HUGE:
		switch (request->second >> ATTRIBUTE2_HUGE_SHIFT & 3) {
		case HUGE_512_MIB:
			return PAGE_512_MIB;
		case HUGE_256_GIB:
			return PAGE_256_GIB;
		default:
			return PAGE_2_MIB;
		}
	default:
		return PAGE_64_KIB;
	}
}

/*
 * What the driver's allocator pins: whole pages, and with any compression whole lines of 256 KiB (the most of all
 * cards, mem_mgr_ga100.c). An alignment alone moves the memory and adds nothing. A request for nothing counts as a
 * page: it can become one.
 */
static uint64_t pinned_bytes(const struct request *request)
{
	uint64_t page = page_of(request);

	if (request->first >> ATTRIBUTE_COMPRESSION_SHIFT & 3 && page < PAGE_256_KIB)
		page = PAGE_256_KIB;
	return request->bytes ? whole_pages(request->bytes, page) : page;
}

/*
 * Charges first, so that two threads cannot both get the last free memory; then the driver is asked. At a fixed
 * address it would pin everything up to the next multiple of the caller's alignment and write back the small size
 * that was asked for (_vidmemPmaAllocate in video_mem.c): no CUDA program asks for that.
 */
static enum core_verdict charge(struct core *core, struct core_file *file, struct core_call *call,
				const struct request *request)
{
	if (request->flags & FLAG_FIXED_ADDRESS)
		return call_refuse(core, call, STATUS_NOT_SUPPORTED);
	call->charged_bytes = pinned_bytes(request);
	lock(core);
	call->card = objects_card(&core->objects, call->client, call->parent);
	unlock(core);
	if (!call_reserve(core, call))
		return call_refuse(core, call, STATUS_NO_MEMORY);
	if (core->ops->try_charge(core->context, file->owner, call->card, call->charged_bytes))
		return CORE_FORWARD;
	lock(core);
	objects_unreserve(&core->objects);
	unlock(core);
	return call_refuse(core, call, STATUS_NO_MEMORY);
}

/* Copies the parameters behind the struct, once. Where the driver is handed parameters, it gets this copy. */
static bool copy_nested(const struct core *core, struct core_call *call, uint32_t size)
{
	if (size > CORE_NESTED_BYTES || !copy_in(core, call->nested, call->parameters, size))
		return false;
	call->nested_bytes = size;
	return true;
}

/* Whatever size of parameters the call names, the driver goes by the class, and so do we. */
static enum core_verdict alloc_memory(struct core *core, struct core_file *file, struct core_call *call)
{
	const struct core_layout *layout = core->layout;
	const unsigned char *memory = call->nested;
	struct request request;

	if (!copy_nested(core, call, CORE_NESTED_BYTES))
		return call_refuse(core, call, STATUS_NOT_SUPPORTED);
	request.bytes = load64(memory + layout->memory_size);
	request.flags = load32(memory + layout->memory_flags);
	request.first = load32(memory + layout->memory_attributes);
	request.second = load32(memory + layout->memory_attributes2);
	call->kind = CALL_MEMORY;
	return charge(core, file, call, &request);
}

/* Without parameters the class is the instance: 0x80 is the first. */
static uint32_t card_of_device(struct core *core, struct core_file *file, struct core_call *call)
{
	uint32_t at = core->layout->device_instance, instance = 0, minor;

	if (call->parameters) {
		if (!copy_nested(core, call, at + sizeof(instance)))
			return CORE_ONLY_CARD;
		instance = load32(call->nested + at);
	}
	lock(core);
	minor = cards_minor(file->cards, instance);
	unlock(core);
	return minor;
}

static enum core_verdict alloc_plain(struct core *core, struct core_call *call, enum call_kind kind)
{
	if (!call_reserve(core, call))
		return call_refuse(core, call, STATUS_NO_MEMORY);
	call->kind = kind;
	return CORE_FORWARD;
}

/* Counts it first, so that two threads cannot both get the last; false: there are too many. */
static bool take_group(struct core *core, struct core_call *call)
{
	uint32_t most = core->ops->groups_most(core->context);

	lock(core);
	call->is_group = core->objects.group_count < most;
	core->objects.group_count += call->is_group;
	unlock(core);
	return call->is_group;
}

static void give_group(struct core *core, struct core_call *call)
{
	lock(core);
	core->objects.group_count -= call->is_group;
	unlock(core);
}

static enum core_verdict alloc_group(struct core *core, struct core_call *call)
{
	enum core_verdict verdict;

	if (!take_group(core, call))
		return call_refuse(core, call, STATUS_NO_CHANNELS);
	verdict = alloc_plain(core, call, CALL_DEVICE);
	if (verdict == CORE_ANSWERED)
		give_group(core, call);
	return verdict;
}

/* The driver makes a group of its own for a channel that is not made in one (kernel_channel.c). */
static bool find_group(struct core *core, struct core_call *call)
{
	struct core_objects *objects = &core->objects;
	uint32_t group;

	lock(core);
	group = objects_find(objects, call->client, call->parent);
	if (group && objects_is_group(objects, group)) {
		call->object = group;
		call->serial = objects->objects[group].serial;
	}
	unlock(core);
	return call->object;
}

/*
 * Another thread may have freed the channel's group before the driver looked for it, and made something else by that
 * handle: then the channel has a group of its own, which counts although it exceeds the limit.
 */
static void check_group(struct core *core, struct core_call *call)
{
	struct core_objects *objects = &core->objects;

	lock(core);
	if (objects->objects[call->object].serial != call->serial || !objects_is_group(objects, call->object)) {
		call->is_group = true;
		objects->group_count++;
	}
	unlock(core);
}

/* Of every generation: Volta's is 0xC36F, Blackwell's 0xCA6F. */
static bool is_channel(uint32_t class)
{
	return class > 0xFF && (class & 0xFF) == 0x6F;
}

/*
 * The memory of a channel's USERD lives as long as the channel (kernel_channel_gv100.c), even after its handle was
 * freed. With the lock held.
 */
static bool hold_memories(struct core *core, struct core_call *call)
{
	struct core_objects *objects = &core->objects;

	for (uint32_t i = 0; i < CHANNEL_MEMORIES; i++) {
		uint32_t handle = load32(call->nested + core->layout->channel_memories + i * sizeof(handle));
		uint32_t object = handle ? objects_find(objects, call->client, handle) : 0;
		uint32_t charge = object ? objects->objects[object].charge : 0;

		if (!charge)
			continue;
		if (!objects_reserve(core))
			return false;
		objects_add_holder(objects, &call->transfer.waiting, charge);
	}
	return true;
}

static enum core_verdict alloc_channel(struct core *core, struct core_call *call)
{
	bool is_held;

	if (!call->parameters)
		return call_pass(call);
	if (!copy_nested(core, call, core->layout->channel_memories + CHANNEL_MEMORIES * sizeof(uint32_t)))
		return call_refuse(core, call, STATUS_NOT_SUPPORTED);
	if (!find_group(core, call) && !take_group(core, call))
		return call_refuse(core, call, STATUS_NO_CHANNELS);
	lock(core);
	is_held = hold_memories(core, call);
	unlock(core);
	if (is_held && call_reserve(core, call)) {
		call->kind = CALL_DEVICE;
		return CORE_FORWARD;
	}
	call_drop_all(core, &call->transfer.waiting);
	give_group(core, call);
	return call_refuse(core, call, STATUS_NO_MEMORY);
}

enum core_verdict call_alloc_before(struct core *core, struct core_file *file, struct core_call *call)
{
	const struct core_layout *layout = core->layout;
	bool is_long = call->size == layout->alloc_long_bytes;
	const unsigned char *alloc = call->copy;
	uint32_t class;

	if (!is_long && call->size != layout->alloc_short_bytes)
		return call_refuse_with(call, CALL_EINVAL);
	if (!copy_struct(core, call, call->size))
		return call_refuse_with(call, CALL_EFAULT);
	class = load32(alloc + layout->alloc_class);
	call->status = is_long ? layout->alloc_long_status : layout->alloc_short_status;
	call->client = load32(alloc + layout->alloc_root);
	call->parent = load32(alloc + layout->alloc_parent);
	call->parameters = load64(alloc + layout->alloc_parameters);
	call->card = CORE_ONLY_CARD;
	if (is_refused_class(class))
		return call_refuse(core, call, STATUS_NOT_SUPPORTED);
	switch (class) {
	case CLASS_ROOT:
	case CLASS_ROOT_NON_PRIV:
	case CLASS_ROOT_CLIENT:
		return alloc_plain(core, call, CALL_CLIENT);
	case CLASS_DEVICE:
		call->card = card_of_device(core, file, call);
		return alloc_plain(core, call, CALL_DEVICE);
	case CLASS_SUBDEVICE:
		return alloc_plain(core, call, CALL_DEVICE);
	case CLASS_CHANNEL_GROUP:
		return alloc_group(core, call);
	case CLASS_MEMORY:
		/* Another encoding of the parameters, for which there is no layout. */
		if (is_long && layout->alloc_long_flags && load32(alloc + layout->alloc_long_flags) & FLAG_SERIALIZED)
			return call_refuse(core, call, STATUS_NOT_SUPPORTED);
		return alloc_memory(core, file, call);
	default:
		return is_channel(class) ? alloc_channel(core, call) : call_pass(call);
	}
}

/* A call that names a class and no size: it must allocate neither card memory nor channels. */
static enum core_verdict refuse_class(const struct core *core, struct core_call *call, uint32_t bytes, uint32_t offset)
{
	uint32_t number;

	if (call->size != bytes)
		return call_refuse_with(call, CALL_EINVAL);
	if (!copy_struct(core, call, bytes))
		return call_refuse_with(call, CALL_EFAULT);
	number = load32(call->copy + offset);
	if (number == CLASS_MEMORY || number == CLASS_CHANNEL_GROUP || is_channel(number) || is_refused_class(number))
		return call_refuse(core, call, STATUS_NOT_SUPPORTED);
	return call_pass(call);
}

enum core_verdict call_window_before(struct core *core, struct core_call *call)
{
	call->status = core->layout->window_status;
	return refuse_class(core, call, core->layout->window_bytes, core->layout->window_class);
}

/* The driver makes an object of any class that is named, and does not check that it is a context DMA. */
enum core_verdict call_context_before(struct core *core, struct core_call *call)
{
	call->status = core->layout->context_status;
	return refuse_class(core, call, core->layout->context_bytes, core->layout->context_class);
}

static enum core_verdict heap_alloc(struct core *core, struct core_file *file, struct core_call *call,
				    const unsigned char *heap)
{
	const struct core_layout *layout = core->layout;
	bool is_range = call->command == HEAP_ALLOC_RANGE;
	struct request request = {
		.bytes = load64(heap + (is_range ? layout->heap_range_size : layout->heap_size_size)),
		.flags = load32(heap + (is_range ? layout->heap_range_flags : layout->heap_size_flags)),
		.first = load32(heap + (is_range ? layout->heap_range_attributes : layout->heap_size_attributes)),
		.second = load32(heap + (is_range ? layout->heap_range_attributes2 : layout->heap_size_attributes2)),
	};

	if (request.flags & FLAG_VIRTUAL)
		return call_pass(call);
	if (request.second & ATTRIBUTE2_EGM)
		return call_refuse(core, call, STATUS_NOT_SUPPORTED);
	if (request.first & ATTRIBUTE_LOCATION)
		return call_pass(call);
	call->kind = CALL_HEAP_MEMORY;
	return charge(core, file, call, &request);
}

enum core_verdict call_heap_before(struct core *core, struct core_file *file, struct core_call *call)
{
	const struct core_layout *layout = core->layout;
	const unsigned char *heap = call->copy;

	if (call->size != layout->heap_bytes)
		return call_refuse_with(call, CALL_EINVAL);
	if (!copy_struct(core, call, call->size))
		return call_refuse_with(call, CALL_EFAULT);
	call->command = load32(heap + layout->heap_function);
	call->status = layout->heap_status;
	call->client = load32(heap + layout->heap_root);
	call->parent = load32(heap + layout->heap_parent);
	switch (call->command) {
	case HEAP_ALLOC_SIZE:
	case HEAP_ALLOC_RANGE:
		return heap_alloc(core, file, call, heap);
	case HEAP_FREE:
		call->handle = load32(heap + layout->heap_free_memory);
		return call_free_object_before(core, call);
	case HEAP_REPORT:
		call->kind = CALL_HEAP_REPORT;
		return CORE_FORWARD;
	/*
	 * In no branch do these allocate video memory: compression of existing memory, a query, a free (whose handle
	 * stays charged: too long, not too short), and pages of the caller's own that the card may access.
	 */
	case HEAP_REACQUIRE:
	case HEAP_RELEASE:
	case HEAP_ALIGNMENT:
	case HEAP_HW_FREE:
	case HEAP_HOST_MEMORY:
		return call_pass(call);
	/* Memory in ways that CUDA has no use for (the first up to branch 525 only), and functions that are not known here. */
	case HEAP_ALLOC_DEPTH:
	case HEAP_ALLOC_TILED:
	case HEAP_HW_ALLOC:
	default:
		return call_refuse(core, call, STATUS_NOT_SUPPORTED);
	}
}

static bool read_handle(const struct core *core, const struct core_call *call, uint32_t *handle)
{
	const struct core_layout *layout = core->layout;
	uint32_t offset = layout->alloc_handle;

	if (call->kind == CALL_HEAP_MEMORY)
		offset = call->command == HEAP_ALLOC_RANGE ? layout->heap_range_memory : layout->heap_size_memory;
	return copy_reply(core, call, handle, offset, sizeof(*handle)) && *handle;
}

static bool read_size(const struct core *core, const struct core_call *call, uint64_t *bytes)
{
	const struct core_layout *layout = core->layout;
	uint32_t offset = call->command == HEAP_ALLOC_RANGE ? layout->heap_range_size : layout->heap_size_size;

	if (call->kind == CALL_MEMORY)
		return copy_in(core, bytes, call->parameters + layout->memory_size, sizeof(*bytes));
	return copy_reply(core, call, bytes, offset, sizeof(*bytes));
}

/*
 * The driver has allocated what was charged. It has written the size in memory that the caller can write too: so a
 * larger size than was charged is believed, and a smaller one never.
 */
static void settle_charge(struct core *core, struct core_file *file, struct core_call *call, bool is_certain)
{
	uint64_t bytes = 0, more = 0;

	if (is_certain && read_size(core, call, &bytes)) {
		bytes = whole_pages(bytes, PAGE_64_KIB);
		if (bytes > MOST_CORRECTED)
			bytes = MOST_CORRECTED;
	}
	if (bytes > call->charged_bytes)
		more = bytes - call->charged_bytes;
	call->charged_bytes += more;
	core->ops->settle_charge(core->context, file->owner, call->card, more);
}

static void cancel_charge(struct core *core, struct core_file *file, struct core_call *call)
{
	lock(core);
	objects_unreserve(&core->objects);
	core->objects.group_count -= call->is_group;
	unlock(core);
	if (call->charged_bytes)
		core->ops->uncharge(core->context, file->owner, call->card, call->charged_bytes);
	call_drop_all(core, &call->transfer.waiting);
}

void call_alloc_after(struct core *core, struct core_file *file, struct core_call *call, long result)
{
	enum call_outcome outcome = call_outcome_of(core, call, result);
	uint32_t handle = 0;

	if (outcome == CALL_HAPPENED && !read_handle(core, call, &handle))
		outcome = CALL_IN_DOUBT;
	if (outcome != CALL_FAILED && call->charged_bytes)
		settle_charge(core, file, call, outcome == CALL_HAPPENED);
	if (outcome != CALL_FAILED && call->object)
		check_group(core, call);
	/* Without its handle it can be charged or counted, but nothing could be found below it. */
	if (outcome == CALL_FAILED || (outcome == CALL_IN_DOUBT && !call->charged_bytes && !call->is_group &&
				       !call->transfer.waiting.first))
		cancel_charge(core, file, call);
	else
		call_remember(core, file, call, outcome == CALL_HAPPENED ? handle : 0);
}
