#include "call.h"

#include <string.h>

/* Every control we answer: number, class of the object it goes to (0: any), size of its parameters (0: by branch). */
#define CONTROLS(X) \
	X(0x00000201, CLASS_CLIENT, ATTACHED_SIZE, attached_ids) \
	X(0x00000205, CLASS_CLIENT, ID_INFO_SIZE, id_info) \
	X(0x20801301, CLASS_SUBDEVICE, FB_V1_SIZE, fb_info_v1) \
	X(0x20801303, CLASS_SUBDEVICE, 0, fb_info_v2) \
	X(0x2080014A, CLASS_SUBDEVICE, GID_SIZE, gid_info) \
	X(0x2080110B, CLASS_SUBDEVICE, CHANNELS_SIZE, disable_channels) \
	X(0xA06C0103, CLASS_CHANNEL_GROUP, SLICE_SIZE, set_slice) \
	X(0xA06C0104, CLASS_CHANNEL_GROUP, SLICE_SIZE, get_slice) \
	X(0x3D05, CLASS_CLIENT, EXPORT_SIZE, export_one) \
	X(0x3D06, CLASS_CLIENT, IMPORT_SIZE, import_one) \
	X(0x3D0B, CLASS_CLIENT, EXPORTS_SIZE, export_many) \
	X(0x3D0C, CLASS_CLIENT, IMPORTS_SIZE, import_many)

enum { CLASS_CHANNEL_GROUP = 0xA06C, SLICE_SIZE = 8, SLICE_OF_DRIVER = 1024 };
enum { GID_BINARY = 2, GID_BYTES = 16, FB_LARGEST_LIST = 128, FB_INDICES = 0x40, NULL_COMMAND_BITS = 0x3FFF };

typedef uint32_t answerer(const struct call *call, const struct object *object, unsigned char *at);

/* A card's number on the bus, made of its place: 0x100, 0x200... never what minor or instance would be. */
uint32_t control_gpu_id(uint32_t index)
{
	return (index + 1) << 8;
}

uint64_t control_free_bytes(const struct rm_card *card)
{
	return card->total - card->reserved - card->used;
}

static uint32_t attached_ids(const struct call *call, const struct object *object, unsigned char *at)
{
	(void)object;
	for (uint32_t i = 0; i < ATTACHED_COUNT; i++)
		put32(at, i * 4, i < call->rm->card_count ? control_gpu_id(i) : UINT32_MAX);
	return RM_OK;
}

static uint32_t id_info(const struct call *call, const struct object *object, unsigned char *at)
{
	uint32_t gpu_id = get32(at, ID_INFO_GPU);

	(void)object;
	for (uint32_t i = 0; i < call->rm->card_count; i++) {
		if (control_gpu_id(i) != gpu_id)
			continue;
		memset(at + sizeof(gpu_id), 0, ID_INFO_SIZE - sizeof(gpu_id));
		put32(at, ID_INFO_INSTANCE, i);
		put32(at, ID_INFO_GPU_INSTANCE, i);
		put32(at, ID_INFO_NUMA, UINT32_MAX);
		return RM_OK;
	}
	return RM_BAD_ARGUMENT;
}

/* D9: which index says what, in KiB. What is reserved belongs to no process, so used = total - free - reserved. */
static uint32_t fb_kib(const struct rm_card *card, uint32_t index)
{
	switch (index) {
	case 0x07:	/* RAM_SIZE */
	case 0x08:	/* TOTAL_RAM_SIZE */
	case 0x05:	/* BAR1_SIZE */
		return (uint32_t)(card->total >> 10);
	case 0x09:	/* HEAP_SIZE */
	case 0x0A:	/* MAPPABLE_HEAP_SIZE */
	case 0x20:	/* USABLE_RAM_SIZE */
		return (uint32_t)((card->total - card->reserved) >> 10);
	case 0x15:	/* VISTA_RESERVED_HEAP_SIZE */
		return (uint32_t)(card->reserved >> 10);
	case 0x12:	/* LARGEST_FREE_REGION_SIZE_KB */
	case 0x16:	/* HEAP_FREE */
		return (uint32_t)(control_free_bytes(card) >> 10);
	case 0x0B:	/* BUS_WIDTH */
		return 4096;
	default:
		return 0;
	}
}

static uint32_t fb_fill(const struct rm_card *card, unsigned char *entries, uint32_t count)
{
	for (uint32_t i = 0; i < count; i++, entries += FB_ENTRY) {
		uint32_t index = get32(entries, 0);

		if (index >= FB_INDICES)
			return RM_BAD_ARGUMENT;
		put32(entries, 4, fb_kib(card, index));
	}
	return RM_OK;
}

static uint32_t fb_info_v2(const struct call *call, const struct object *object, unsigned char *at)
{
	uint32_t count = get32(at, FB_COUNT);

	if (count > call->rm->layout->fb_entries)
		return RM_BAD_ARGUMENT;
	return fb_fill(&call->rm->cards[object->card], at + FB_ENTRIES_V2, count);
}

/* The list lies behind a pointer of its own. */
static uint32_t fb_info_v1(const struct call *call, const struct object *object, unsigned char *at)
{
	const struct rm_host *host = call->rm->host;
	uint32_t count = get32(at, FB_COUNT), status;
	uint64_t list = get64(at, FB_V1_POINTER);
	unsigned char *entries;

	if (!count || count > FB_LARGEST_LIST)
		return RM_BAD_ARGUMENT;
	entries = host->take(count * (size_t)FB_ENTRY);
	if (!entries)
		return RM_NO_ROOM_FOR_STATE;
	status = call_read(call, entries, list, count * (size_t)FB_ENTRY);
	if (status == RM_OK)
		status = fb_fill(&call->rm->cards[object->card], entries, count);
	if (status == RM_OK)
		status = call_write(call, list, entries, count * (size_t)FB_ENTRY);
	host->give(entries);
	return status;
}

static uint32_t nibble(char c)
{
	if (c >= '0' && c <= '9')
		return (uint32_t)(c - '0');
	return (uint32_t)((c | 0x20) - 'a') + 10;
}

static void gid_bytes(const char *uuid, unsigned char *at)
{
	uint32_t count = 0;

	for (const char *c = uuid + 4; c[0] && c[1] && count < GID_BYTES; c++) {
		if (*c == '-')
			continue;
		at[count++] = (unsigned char)(nibble(c[0]) << 4 | nibble(c[1]));
		c++;
	}
}

static uint32_t gid_info(const struct call *call, const struct object *object, unsigned char *at)
{
	const struct rm_card *card = &call->rm->cards[object->card];
	bool is_binary = (get32(at, GID_FLAGS) & 3) == GID_BINARY;

	memset(at + GID_DATA, 0, GID_SIZE - GID_DATA);
	if (is_binary)
		gid_bytes(card->uuid, at + GID_DATA);
	else
		memcpy(at + GID_DATA, card->uuid, sizeof(card->uuid));
	put32(at, GID_LENGTH, is_binary ? GID_BYTES : 41);	/* GPU-, 36 characters and the end */
	return RM_OK;
}

/* Like the driver, which hands the list on to the card's firmware: whoever asks, for whichever client's channels. */
static uint32_t disable_channels(const struct call *call, const struct object *object, unsigned char *at)
{
	uint32_t count = get32(at, CHANNELS_COUNT);

	(void)object;
	if (count > CHANNELS_MOST)
		return RM_BAD_ARGUMENT;
	for (uint32_t i = 0; i < count; i++)
		if (!object_find(call->rm, get32(at, CHANNELS_CLIENTS + i * 4), get32(at, CHANNELS_HANDLES + i * 4)))
			return RM_NO_SUCH_OBJECT;
	return RM_OK;
}

/* D38: any value is taken. */
static uint32_t set_slice(const struct call *call, const struct object *object, unsigned char *at)
{
	object_find(call->rm, object->client, object->handle)->slice = get64(at, 0);
	return RM_OK;
}

static uint32_t get_slice(const struct call *call, const struct object *object, unsigned char *at)
{
	(void)call;
	put64(at, 0, object->slice ? object->slice : SLICE_OF_DRIVER);
	return RM_OK;
}

static uint32_t answer_at(const struct call *call, const struct object *object, answerer *answer,
			  uint64_t params, size_t size)
{
	unsigned char *at = call->rm->host->take(size);
	uint32_t status;

	if (!at)
		return RM_NO_ROOM_FOR_STATE;
	status = call_read(call, at, params, size);
	if (status == RM_OK)
		status = answer(call, object, at);
	if (status == RM_OK)
		status = call_write(call, params, at, size);
	call->rm->host->give(at);
	return status;
}

/* D10: a size that is not the control's own, or a pointer without one, is refused. A command of category 0 and number 0
 * does nothing, well, and before anything is looked at. */
static uint32_t run(const struct call *call, const unsigned char *at)
{
	static const struct {
		uint32_t command, class_number, size;
		answerer *answer;
	} controls[] = {
#define ROW(command, class_number, size, answer) { command, class_number, size, answer },
		CONTROLS(ROW)
#undef ROW
	};
	uint32_t command = get32(at, CONTROL_COMMAND), size = get32(at, CONTROL_PARAMS_SIZE);
	uint64_t params = get64(at, CONTROL_PARAMS);
	struct object *object;
	uint32_t status;

	if (!(command & NULL_COMMAND_BITS))
		return RM_OK;
	status = call_object(call, get32(at, CONTROL_CLIENT), get32(at, CONTROL_OBJECT), &object);
	if (status != RM_OK)
		return status;
	if (!size != !params)
		return RM_BAD_ARGUMENT;
	for (size_t i = 0; i < sizeof(controls) / sizeof(*controls); i++) {
		uint32_t wanted = controls[i].size;

		if (controls[i].command != command)
			continue;
		if (!wanted)
			wanted = FB_ENTRIES_V2 + call->rm->layout->fb_entries * (uint32_t)FB_ENTRY;
		if (size != wanted)
			return RM_BAD_ARGUMENT;
		if (object->class_number != controls[i].class_number)
			return RM_NOT_SUPPORTED;
		return answer_at(call, object, controls[i].answer, params, size);
	}
	return RM_NOT_SUPPORTED;
}

void control(const struct call *call, unsigned char *at)
{
	put32(at, CONTROL_STATUS, run(call, at));
}
