#include "memory.h"

enum {
	ATTR_PAGE_SHIFT = 23,	/* two bits: default, 4 KiB, big, huge */
	PAGE_DEFAULT = 0, PAGE_SMALL = 1, PAGE_HUGE = 3,
	SMALL_PAGE = 4096, BIG_PAGE = 64 << 10, HUGE_PAGE = 2 << 20,
};

bool memory_has_card(const struct object *object)
{
	return object->class_number == CLASS_DEVICE || object->class_number == CLASS_SUBDEVICE;
}

/* D6: 2 MiB pages from 2 MiB on unless the request says otherwise, 64 KiB ones below. */
static uint64_t page_bytes(const struct request *request)
{
	uint32_t page = request->attr >> ATTR_PAGE_SHIFT & 3;

	if (page == PAGE_SMALL)
		return SMALL_PAGE;
	if (page == PAGE_HUGE || (page == PAGE_DEFAULT && request->bytes >= HUGE_PAGE))
		return HUGE_PAGE;
	return BIG_PAGE;
}

/* D7: the caller is told of 4 KiB pages, but the card has none that small: it gives 64 KiB for each begun 64 KiB. */
static uint64_t card_bytes(uint64_t bytes)
{
	return (bytes + BIG_PAGE - 1) & ~(uint64_t)(BIG_PAGE - 1);
}

static uint32_t round_up(struct request *request, uint64_t page)
{
	if (!request->bytes)
		return RM_BAD_ARGUMENT;
	if (request->bytes > UINT64_MAX - HUGE_PAGE)
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
	if (rm->refusals_left) {
		rm->refusals_left--;
		return rm->refusal;
	}
	memory = memory_take(rm, parent->card, card_bytes(request->bytes));
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

uint32_t memory_alloc(struct rm *rm, struct object *parent, uint32_t *handle, uint32_t class_number,
			     struct request *request)
{
	if (!memory_has_card(parent))
		return RM_BAD_PARENT;
	if (class_number == CLASS_VIDEO_MEMORY)
		return alloc_video(rm, parent, handle, request);
	if (parent->class_number != CLASS_DEVICE)
		return RM_BAD_PARENT;
	return alloc_elsewhere(rm, parent, handle, class_number, request);
}
