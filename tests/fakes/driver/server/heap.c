#include "call.h"
#include "memory.h"

enum {
	FLAG_HANDLE_PROVIDED = 0x00004000,
	FREE_FLAG_HANDLE_PROVIDED = 1,
	ATTR2_EGM = 1 << 24,
	HEAP_FUNCTION_FREE = 3,
	HEAP_FUNCTION_REPORT = 5,
	SCANLINE_MASK = 31,
};

static uint32_t heap_class(const struct request *request)
{
	if (request->flags & FLAG_VIRTUAL)
		return CLASS_VIRTUAL_MEMORY;
	if (request->attr2 & ATTR2_EGM)
		return CLASS_EXTENDED_MEMORY;
	return request->attr >> ATTR_LOCATION_SHIFT & 3 ? CLASS_SYSTEM_MEMORY : CLASS_VIDEO_MEMORY;
}

/* D17, D27: the size that the caller sent, or what the function makes of its other words. */
static uint64_t heap_bytes(const unsigned char *at, const struct heap_layout *layout)
{
	uint32_t scanline;

	switch (layout->function) {
	case HEAP_SURFACE_FUNCTION:	/* all of it in 32 bits, as it wraps in the driver */
		scanline = (get32(at, HEAP_SURFACE_WIDTH) * get32(at, HEAP_DEPTH) + 7) >> 3;
		return get32(at, HEAP_SURFACE_HEIGHT) * ((scanline + SCANLINE_MASK) & ~(uint32_t)SCANLINE_MASK);
	case HEAP_PITCH_FUNCTION:
		return (uint64_t)get32(at, HEAP_PITCH_HEIGHT) * get32(at, HEAP_PITCH);
	default:
		return get64(at, layout->bytes);
	}
}

static uint32_t heap_alloc(const struct call *call, unsigned char *at, struct object *parent,
			   const struct heap_layout *layout)
{
	struct request request = {
		.owner = get32(at, HEAP_OWNER), .flags = get32(at, HEAP_FLAGS), .attr = get32(at, layout->attr), .attr2 = get32(at, layout->attr2),
		.bytes = heap_bytes(at, layout), .alignment = get64(at, layout->bytes + 8u),
		.offset = get64(at, layout->bytes + 16u),
	};
	uint32_t handle = request.flags & FLAG_HANDLE_PROVIDED ? get32(at, HEAP_MEMORY) : 0;
	uint32_t class_number = heap_class(&request), status;

	if (class_number == CLASS_EXTENDED_MEMORY)
		return RM_NOT_SUPPORTED;
	status = memory_alloc(call->rm, parent, &handle, class_number, &request);
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
	return status == RM_NO_SUCH_OBJECT ? RM_OK : status;
}

static uint32_t heap_report(const struct call *call, unsigned char *at, const struct object *parent)
{
	const struct rm_card *card = &call->rm->cards[parent->card];

	if (!memory_has_card(parent))
		return RM_BAD_PARENT;
	put64(at, HEAP_TOTAL, card->total - card->reserved);
	put64(at, HEAP_FREE, control_free_bytes(card));
	put64(at, HEAP_LARGEST_BASE, 0);
	put64(at, HEAP_LARGEST, control_free_bytes(card));
	put64(at, HEAP_BASE, 0);
	return RM_OK;
}

static uint32_t heap_function(const struct call *call, unsigned char *at)
{
	uint32_t function = get32(at, HEAP_FUNCTION), status;
	const struct heap_layout *layout = heap_layout_of(function, call->rm->layout->branch);
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
