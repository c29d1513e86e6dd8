#include "memory.h"

/* Two bits each: of the first attributes the page and the compression, of the second what a huge page is. */
enum {
	FLAG_FIXED_ADDRESS = 0x10, FLAG_ALIGNMENT_HINT = 0x80, FLAG_ALIGNMENT_FORCE = 0x100,
	ATTR_COMPRESSION_SHIFT = 12, ATTR_PAGE_SHIFT = 23, ATTR2_HUGE_SHIFT = 20,
	PAGE_DEFAULT = 0, PAGE_SMALL = 1, PAGE_HUGE = 3, HUGE_512_MIB = 2, HUGE_256_GIB = 3,
	BRANCH_256_GIB = 560,		/* the first that knows pages of this size; its allocator has none */
	SMALL_PAGE = 4096, BIG_PAGE = 64 << 10, COMPRESSION_LINE = 256 << 10, HUGE_PAGE = 2 << 20,
	LARGE_PAGE = 512 << 20,
};

bool memory_has_card(const struct object *object)
{
	return object->class_number == CLASS_DEVICE || object->class_number == CLASS_SUBDEVICE;
}

static uint64_t up(uint64_t bytes, uint64_t page)
{
	return (bytes + page - 1) / page * page;
}

/*
 * D6: 2 MiB pages from 2 MiB on unless the request says otherwise, 64 KiB ones below. 0: there is no such page.
 * dmaNvos32ToPageSizeAttr in mem.c, memmgrDeterminePageSize in mem_mgr.c, 580.142.
 */
static uint64_t page_bytes(const struct request *request, unsigned branch)
{
	uint32_t page = request->attr >> ATTR_PAGE_SHIFT & 3, huge = request->attr2 >> ATTR2_HUGE_SHIFT & 3;

	if (page == PAGE_SMALL)
		return SMALL_PAGE;
	if (page == PAGE_HUGE && huge == HUGE_512_MIB)
		return LARGE_PAGE;
	if (page == PAGE_HUGE && huge == HUGE_256_GIB) {
		if (branch >= BRANCH_256_GIB)
			return 0;
		page = PAGE_DEFAULT;
	}
	if (page == PAGE_HUGE || (page == PAGE_DEFAULT && request->bytes >= HUGE_PAGE))
		return HUGE_PAGE;
	return BIG_PAGE;
}

/* D30: compressed memory comes in lines of the card, mem_mgr_ga100.c, 580.142: the most that any card has. */
static uint64_t line_bytes(const struct request *request, uint64_t page)
{
	bool is_compressed = request->attr >> ATTR_COMPRESSION_SHIFT & 3;

	return is_compressed && page < COMPRESSION_LINE ? COMPRESSION_LINE : page;
}

/* memmgrAllocDetermineAlignment in mem_mgr_gm107.c, 580.142: the caller's alignment, where it divides or is a multiple. */
static uint64_t alignment_bytes(const struct request *request, uint64_t line)
{
	bool is_asked = request->flags & (FLAG_ALIGNMENT_HINT | FLAG_ALIGNMENT_FORCE);
	uint64_t asked = is_asked ? request->alignment : SMALL_PAGE;

	if (asked && asked >= line && asked % line == 0)
		return asked;
	if (!asked || line % asked == 0 || !(request->flags & FLAG_ALIGNMENT_FORCE))
		return line;
	return 0;
}

/*
 * D7: the caller is told of 4 KiB pages, but the card has none that small: it gives 64 KiB for each begun 64 KiB.
 * D29: at a fixed address it gives all from there, rounded down, to the next multiple of the alignment, and the caller is
 * told of what it asked for: _vidmemPmaAllocate in video_mem.c, the same from 515.43.04 to 595.45.04. 0: it cannot.
 */
static uint64_t card_bytes(const struct request *request, uint64_t page)
{
	uint64_t line = line_bytes(request, page), alignment = alignment_bytes(request, line), begin;

	if (page < BIG_PAGE)
		page = BIG_PAGE;
	if (!alignment)
		return 0;
	if (alignment < page)
		alignment = page;
	if (alignment & (alignment - 1))
		return 0;
	if (!(request->flags & FLAG_FIXED_ADDRESS))
		return up(up(request->bytes, line), page);
	begin = request->offset & ~(alignment - 1);
	if (begin > UINT64_MAX / 4 || alignment > UINT64_MAX / 4)
		return 0;
	return up(up(begin + up(request->bytes, line), alignment) - begin, page);
}

static uint32_t round_up(struct request *request, uint64_t page)
{
	if (!request->bytes)
		return RM_BAD_ARGUMENT;
	if (request->bytes > UINT64_MAX / 4)
		return RM_NO_MEMORY;
	request->bytes = up(request->bytes, page);
	return RM_OK;
}

static uint32_t alloc_video(struct rm *rm, struct object *parent, uint32_t *handle, struct request *request)
{
	uint64_t page = page_bytes(request, rm->layout->branch), pinned;
	struct object *object;
	struct memory *memory;
	uint32_t status;

	if (!page || request->flags & FLAG_VIRTUAL || request->attr >> ATTR_LOCATION_SHIFT & 3)
		return RM_BAD_ARGUMENT;
	status = round_up(request, page);
	if (status != RM_OK)
		return status;
	pinned = card_bytes(request, page);
	if (!pinned)
		return RM_BAD_ARGUMENT;
	if (rm->refusals_left) {
		rm->refusals_left--;
		return rm->refusal;
	}
	memory = memory_take(rm, parent->card, pinned);
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
	if (!request->owner && class_number != CLASS_VIRTUAL_MEMORY)
		return RM_BAD_OWNER;
	if (class_number == CLASS_VIDEO_MEMORY)
		return alloc_video(rm, parent, handle, request);
	if (parent->class_number != CLASS_DEVICE)
		return RM_BAD_PARENT;
	return alloc_elsewhere(rm, parent, handle, class_number, request);
}
