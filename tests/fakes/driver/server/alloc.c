#include "call.h"

#include <string.h>

enum {
	FLAG_VIRTUAL = 0x00080000,
	FLAG_HANDLE_PROVIDED = 0x00004000,
	FREE_FLAG_HANDLE_PROVIDED = 1,
	ATTR_LOCATION_SHIFT = 25,	/* two bits: 0 is video memory */
	ATTR_PAGE_SHIFT = 23,		/* two bits: default, 4 KiB, big, huge */
	ATTR2_EGM = 1 << 24,
	PAGE_DEFAULT = 0, PAGE_HUGE = 3,
	SMALL_PAGE = 4096, BIG_PAGE = 64 << 10, HUGE_PAGE = 2 << 20,
	MEMORY_LARGEST = 128,
};

/* Objects that take no card memory and that programs make on their way: an address space, channel groups, events. */
#define HARMLESS(X) X(0x90F1) X(0xA06C) X(0x0005) X(0x0079) X(0x0070)

/* What only an administrator may ask for, and no CUDA program does. */
#define PRIVILEGED(X) X(0xC2) X(0x42) X(0x81) X(0x82) X(0x83) X(0xB1)

struct request {
	uint32_t flags, attr, attr2;
	uint64_t bytes, offset, limit;
};

static bool is_harmless(uint32_t class_number)
{
#define SAME(number) || class_number == (number)
	return false HARMLESS(SAME);
}

static bool is_privileged(uint32_t class_number)
{
	return false PRIVILEGED(SAME);
#undef SAME
}

static bool is_device(const struct object *object)
{
	return object->class_number == CLASS_DEVICE || object->class_number == CLASS_SUBDEVICE;
}

/* D6: 2 MiB pages from 2 MiB on unless the request says otherwise, 64 KiB ones below; nothing smaller than those. */
static uint64_t page_bytes(const struct request *request)
{
	uint32_t page = request->attr >> ATTR_PAGE_SHIFT & 3;

	if (page == PAGE_HUGE || (page == PAGE_DEFAULT && request->bytes >= HUGE_PAGE))
		return HUGE_PAGE;
	return BIG_PAGE;
}

static uint32_t round_up(struct request *request, uint64_t page)
{
	if (!request->bytes)
		return RM_BAD_ARGUMENT;
	if (request->bytes > UINT64_MAX - page)
		return RM_NO_MEMORY;
	request->bytes = (request->bytes + page - 1) & ~(page - 1);
	return RM_OK;
}

static uint32_t alloc_video(struct rm *rm, struct object *parent, uint32_t *handle, struct request *request)
{
	struct object *object;
	struct memory *memory;
	uint32_t status;

	if (request->flags & FLAG_VIRTUAL || request->attr >> ATTR_LOCATION_SHIFT & 3)
		return RM_BAD_ARGUMENT;
	status = round_up(request, page_bytes(request));
	if (status != RM_OK)
		return status;
	memory = memory_take(rm, parent->card, request->bytes);
	if (!memory) {
		rm->counts.refused++;
		return RM_NO_MEMORY;
	}
	status = object_add(rm, parent, handle, CLASS_VIDEO_MEMORY, &object);
	if (status != RM_OK) {
		memory_release(rm, memory);
		return status;
	}
	memory_hold(memory, object);
	request->limit = request->bytes - 1;
	return RM_OK;
}

/* System memory and address ranges: an object, and nothing of the card. */
static uint32_t alloc_elsewhere(struct rm *rm, struct object *parent, uint32_t *handle, uint32_t class_number,
				struct request *request)
{
	struct object *object;
	uint32_t status;

	if (class_number == CLASS_SYSTEM_MEMORY && !(request->attr >> ATTR_LOCATION_SHIFT & 3))
		return RM_BAD_ARGUMENT;
	status = round_up(request, SMALL_PAGE);
	if (status != RM_OK)
		return status;
	request->limit = request->bytes - 1;
	return object_add(rm, parent, handle, class_number, &object);
}

static uint32_t alloc_memory(struct rm *rm, struct object *parent, uint32_t *handle, uint32_t class_number,
			     struct request *request)
{
	if (!is_device(parent))
		return RM_BAD_PARENT;
	if (class_number == CLASS_VIDEO_MEMORY)
		return alloc_video(rm, parent, handle, request);
	return alloc_elsewhere(rm, parent, handle, class_number, request);
}

/* The same with parameters in the caller's memory. What cannot be told to the caller does not stay. */
static uint32_t alloc_memory_at(const struct call *call, struct object *parent, uint32_t *handle,
				uint32_t class_number, uint64_t params)
{
	unsigned char at[MEMORY_LARGEST];
	struct request request;
	uint32_t status = call_read(call, at, params, call->rm->layout->memory_size);

	if (status != RM_OK)
		return status;
	request = (struct request){
		.flags = get32(at, MEMORY_FLAGS), .attr = get32(at, MEMORY_ATTR), .attr2 = get32(at, MEMORY_ATTR2),
		.bytes = get64(at, MEMORY_BYTES), .offset = get64(at, MEMORY_OFFSET),
	};
	status = alloc_memory(call->rm, parent, handle, class_number, &request);
	if (status != RM_OK)
		return status;
	put64(at, MEMORY_BYTES, request.bytes);
	put64(at, MEMORY_LIMIT, request.limit);
	status = call_write(call, params, at, call->rm->layout->memory_size);
	if (status != RM_OK)
		object_free(call->rm, object_find(call->rm, parent->client, *handle));
	return status;
}

static uint32_t alloc_client(const struct call *call, uint32_t *handle)
{
	struct object *client;
	uint32_t status = object_add(call->rm, NULL, handle, CLASS_CLIENT, &client);

	if (status != RM_OK)
		return status;
	client->pid = call->rm->host->process(call->caller);
	client->file = call->file;
	client->next_of_file = call->file->clients;
	if (client->next_of_file)
		client->next_of_file->previous_of_file = client;
	call->file->clients = client;
	return RM_OK;
}

/* Without parameters: the first device. */
static uint32_t alloc_device(const struct call *call, struct object *client, uint32_t *handle, uint64_t params)
{
	unsigned char at[DEVICE_SIZE];
	struct object *device;
	uint32_t status, card = 0;

	if (client->parent)
		return RM_BAD_PARENT;
	if (params) {
		status = call_read(call, at, params, sizeof(at));
		if (status != RM_OK)
			return status;
		card = get32(at, DEVICE_ID);
	}
	if (card >= call->rm->card_count)
		return RM_BAD_DEVICE;
	status = object_add(call->rm, client, handle, CLASS_DEVICE, &device);
	if (status == RM_OK)
		device->card = card;
	return status;
}

static uint32_t alloc_plain(const struct call *call, struct object *parent, uint32_t *handle, uint32_t class_number)
{
	struct object *object;

	if (class_number == CLASS_SUBDEVICE && parent->class_number != CLASS_DEVICE)
		return RM_BAD_PARENT;
	return object_add(call->rm, parent, handle, class_number, &object);
}

static uint32_t alloc_class(const struct call *call, unsigned char *at, uint32_t *handle)
{
	uint32_t class_number = get32(at, ALLOC_CLASS);
	uint64_t params = get64(at, ALLOC_PARAMS);
	struct object *parent;
	uint32_t status;

	if (class_number <= 1 || class_number == CLASS_CLIENT) {
		put32(at, ALLOC_CLASS, CLASS_CLIENT);
		return alloc_client(call, handle);
	}
	status = call_object(call, get32(at, ALLOC_ROOT), get32(at, ALLOC_PARENT), &parent);
	if (status != RM_OK)
		return status;
	if (class_number == CLASS_DEVICE)
		return alloc_device(call, parent, handle, params);
	if (class_number == CLASS_VIDEO_MEMORY || class_number == CLASS_SYSTEM_MEMORY
	    || class_number == CLASS_VIRTUAL_MEMORY)
		return alloc_memory_at(call, parent, handle, class_number, params);
	if (class_number == CLASS_SUBDEVICE || is_harmless(class_number))
		return alloc_plain(call, parent, handle, class_number);
	if (!is_privileged(class_number))
		return RM_BAD_CLASS;
	if (!call->rm->host->is_admin(call->caller))
		return RM_NOT_PERMITTED;
	return class_number == CLASS_WHOLE_CARD ? alloc_plain(call, parent, handle, class_number) : RM_NOT_SUPPORTED;
}

void alloc_object(const struct call *call, unsigned char *at, bool is_long)
{
	const struct layout *layout = call->rm->layout;
	uint32_t handle = get32(at, ALLOC_NEW);
	uint32_t status = alloc_class(call, at, &handle);

	put32(at, ALLOC_NEW, handle);
	put32(at, is_long ? layout->alloc_long_status : layout->alloc_status, status);
}

/* RM_ALLOC_MEMORY makes nothing in the card: a dummy for class 0x40, host memory, or a window for an administrator. */
void alloc_host(const struct call *call, unsigned char *at)
{
	uint32_t class_number = get32(at, HOST_CLASS), handle = get32(at, HOST_NEW);
	struct object *parent, *object;
	uint32_t status = call_object(call, get32(at, HOST_ROOT), get32(at, HOST_PARENT), &parent);

	if (status == RM_OK && !is_device(parent))
		status = RM_BAD_PARENT;
	if (status == RM_OK && class_number == CLASS_VIDEO_MEMORY && call->rm->host->is_admin(call->caller))
		class_number = CLASS_WHOLE_CARD;
	if (status == RM_OK && class_number == CLASS_VIDEO_MEMORY)
		class_number = CLASS_SYSTEM_MEMORY;
	if (status == RM_OK && class_number != CLASS_SYSTEM_MEMORY && class_number != CLASS_OS_DESCRIPTOR
	    && class_number != CLASS_WHOLE_CARD)
		status = RM_BAD_CLASS;
	if (status == RM_OK)
		status = object_add(call->rm, parent, &handle, class_number, &object);
	put32(at, HOST_NEW, handle);
	put32(at, HOST_STATUS, status);
}

static uint32_t heap_class(const struct request *request)
{
	if (request->flags & FLAG_VIRTUAL)
		return CLASS_VIRTUAL_MEMORY;
	if (request->attr2 & ATTR2_EGM)
		return CLASS_EXTENDED_MEMORY;
	return request->attr >> ATTR_LOCATION_SHIFT & 3 ? CLASS_SYSTEM_MEMORY : CLASS_VIDEO_MEMORY;
}

static uint32_t heap_alloc(const struct call *call, unsigned char *at, struct object *parent,
			   const struct heap_layout *layout)
{
	struct request request = {
		.flags = get32(at, HEAP_FLAGS), .attr = get32(at, layout->attr), .attr2 = get32(at, layout->attr2),
		.bytes = get64(at, layout->bytes), .offset = get64(at, layout->offset),
	};
	uint32_t handle = request.flags & FLAG_HANDLE_PROVIDED ? get32(at, HEAP_MEMORY) : 0;
	uint32_t class_number = heap_class(&request), status;

	if (layout->function == HEAP_PITCH_FUNCTION)
		request.bytes = (uint64_t)get32(at, HEAP_PITCH_HEIGHT) * get32(at, HEAP_PITCH);
	if (class_number == CLASS_EXTENDED_MEMORY)
		return RM_NOT_SUPPORTED;
	status = alloc_memory(call->rm, parent, &handle, class_number, &request);
	put32(at, HEAP_MEMORY, handle);
	put64(at, layout->bytes, request.bytes);
	put64(at, layout->limit, request.limit);
	put64(at, HEAP_TOTAL, 0);
	put64(at, HEAP_FREE, 0);
	return status;
}

static uint32_t heap_free(const struct call *call, const unsigned char *at)
{
	struct object *object;
	uint32_t status;

	if (!(get32(at, HEAP_FREE_FLAGS) & FREE_FLAG_HANDLE_PROVIDED))
		return RM_BAD_ARGUMENT;
	status = call_object(call, get32(at, HEAP_ROOT), get32(at, HEAP_MEMORY), &object);
	if (status == RM_OK)
		object_free(call->rm, object);
	return status;
}

static uint32_t heap_report(const struct call *call, unsigned char *at, const struct object *parent)
{
	const struct rm_card *card = &call->rm->cards[parent->card];

	if (!is_device(parent))
		return RM_BAD_PARENT;
	put64(at, HEAP_TOTAL, card->total - card->reserved);
	put64(at, HEAP_FREE, control_free_bytes(card));
	put64(at, HEAP_LARGEST_BASE, 0);
	put64(at, HEAP_LARGEST, control_free_bytes(card));
	put64(at, HEAP_BASE, 0);
	return RM_OK;
}

enum { HEAP_FUNCTION_FREE = 3, HEAP_FUNCTION_REPORT = 5 };

static uint32_t heap_function(const struct call *call, unsigned char *at)
{
	uint32_t function = get32(at, HEAP_FUNCTION), status;
	const struct heap_layout *layout = heap_layout_of(function);
	struct object *parent;

	if (function == HEAP_FUNCTION_FREE)
		return heap_free(call, at);
	status = call_object(call, get32(at, HEAP_ROOT), get32(at, HEAP_PARENT), &parent);
	if (status != RM_OK)
		return status;
	if (function == HEAP_FUNCTION_REPORT)
		return heap_report(call, at, parent);
	return layout ? heap_alloc(call, at, parent, layout) : RM_BAD_ARGUMENT;
}

void alloc_heap(const struct call *call, unsigned char *at)
{
	put32(at, HEAP_STATUS, heap_function(call, at));
}

/* The source may be another client's, of another process: that is how memory is shared. */
static uint32_t dup_into(const struct call *call, const unsigned char *at, uint32_t *handle)
{
	struct object *parent, *copy, *from;
	uint32_t status = call_object(call, get32(at, DUP_CLIENT), get32(at, DUP_PARENT), &parent);

	if (status != RM_OK)
		return status;
	from = object_find(call->rm, get32(at, DUP_FROM_CLIENT), get32(at, DUP_FROM));
	if (!from)
		return RM_NO_SUCH_OBJECT;
	if (from->class_number != CLASS_VIDEO_MEMORY && from->class_number != CLASS_SYSTEM_MEMORY)
		return RM_NOT_SUPPORTED;
	if (!is_device(parent))
		return RM_BAD_PARENT;
	status = object_add(call->rm, parent, handle, from->class_number, &copy);
	if (status == RM_OK && from->memory) {
		from->memory->references++;
		memory_hold(from->memory, copy);
	}
	return status;
}

void alloc_dup(const struct call *call, unsigned char *at)
{
	uint32_t handle = get32(at, DUP_NEW);
	uint32_t status = dup_into(call, at, &handle);

	put32(at, DUP_NEW, handle);
	put32(at, DUP_STATUS, status);
}

void alloc_free(const struct call *call, unsigned char *at)
{
	struct object *object;
	uint32_t status = call_object(call, get32(at, FREE_ROOT), get32(at, FREE_OLD), &object);

	if (status == RM_OK)
		object_free(call->rm, object);
	put32(at, FREE_STATUS, status);
}
