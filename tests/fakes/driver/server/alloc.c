#include "call.h"
#include "memory.h"

enum { MEMORY_LARGEST = 128, SHARE_WITH_NONE = 0, BRANCH_USER_SHARED = 525 };

/* Objects that take no card memory and that programs make on their way: an address space, channel groups, events. */
#define HARMLESS(X) X(0x90F1) X(0xA06C) X(0x0005) X(0x0079) X(0x0070)

/* What only an administrator may ask for, and what no card of ours offers; no CUDA program asks for either. */
#define PRIVILEGED(X) X(0xC2) X(0x82) X(0x83)
#define NOT_OFFERED(X) X(0x42) X(0xB1)

static bool is_harmless(uint32_t class_number)
{
#define SAME(number) || class_number == (number)
	return false HARMLESS(SAME);
}

static bool is_privileged(uint32_t class_number)
{
	return false PRIVILEGED(SAME);
}

static bool is_not_offered(uint32_t class_number)
{
	return false NOT_OFFERED(SAME);
#undef SAME
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
		.owner = get32(at, MEMORY_OWNER), .flags = get32(at, MEMORY_FLAGS), .attr = get32(at, MEMORY_ATTR), .attr2 = get32(at, MEMORY_ATTR2),
		.bytes = get64(at, MEMORY_BYTES), .alignment = get64(at, MEMORY_ALIGNMENT),
		.offset = get64(at, MEMORY_OFFSET),
	};
	status = memory_alloc(call->rm, parent, handle, class_number, &request);
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
	if (call->rm->host->has_card && !call->rm->host->has_card(call->caller, card))
		return RM_NOT_PERMITTED;
	status = object_add(call->rm, client, handle, CLASS_DEVICE, &device);
	if (status == RM_OK)
		device->card = card;
	return status;
}

static uint32_t alloc_plain(const struct call *call, struct object *parent, uint32_t *handle, uint32_t class_number)
{
	struct object *object;

	if ((class_number == CLASS_SUBDEVICE && parent->class_number != CLASS_DEVICE)
	    || (class_number == CLASS_USER_SHARED && parent->class_number != CLASS_SUBDEVICE))
		return RM_BAD_PARENT;
	return object_add(call->rm, parent, handle, class_number, &object);
}

/*
 * D35: the memory that a channel's USERD is in lives as long as the channel (kernel_channel_gv100.c), and a semaphore surface has
 * a duplicate of its memory (sem_surf.c), 580.65.06.
 */
static bool is_keeper(uint32_t class_number)
{
	return class_number == CLASS_SEMAPHORE_SURFACE || (class_number > 0xFF && (class_number & 0xFF) == CLASS_CHANNEL_END);
}

static uint32_t alloc_keeper(const struct call *call, struct object *parent, uint32_t *handle, uint32_t class_number,
			     uint64_t params)
{
	uint64_t at = params + (class_number == CLASS_SEMAPHORE_SURFACE ? 0u : CHANNEL_USERD);
	unsigned char named[sizeof(uint32_t)];
	struct object *memory, *object;
	uint32_t status = params ? call_read(call, named, at, sizeof(named)) : RM_BAD_ARGUMENT;

	if (status != RM_OK)
		return status;
	memory = object_find(call->rm, parent->client, get32(named, 0));
	if (!memory || memory->class_number != CLASS_VIDEO_MEMORY)
		return RM_NO_SUCH_OBJECT;
	status = object_add(call->rm, parent, handle, class_number, &object);
	if (status == RM_OK) {
		memory->memory->references++;
		memory_hold(memory->memory, object);
	}
	return status;
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
	if (class_number == CLASS_USER_SHARED && call->rm->layout->branch >= BRANCH_USER_SHARED)
		return alloc_plain(call, parent, handle, class_number);
	if (is_keeper(class_number))
		return alloc_keeper(call, parent, handle, class_number, params);
	if (is_not_offered(class_number))
		return RM_NOT_SUPPORTED;
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

/* D16: RM_ALLOC_MEMORY makes nothing in the card: host memory, and for class 0x40 a window on all of it for an
 * administrator, a dummy for others. */
void alloc_host(const struct call *call, unsigned char *at)
{
	uint32_t class_number = get32(at, HOST_CLASS), handle = get32(at, HOST_NEW);
	struct object *parent, *object;
	uint32_t status = call_object(call, get32(at, HOST_ROOT), get32(at, HOST_PARENT), &parent);

	if (status == RM_OK && !memory_has_card(parent))
		status = RM_BAD_PARENT;
	if (status == RM_OK && class_number != CLASS_VIDEO_MEMORY && class_number != CLASS_SYSTEM_MEMORY
	    && class_number != CLASS_OS_DESCRIPTOR)
		status = RM_BAD_CLASS;
	if (status == RM_OK && class_number == CLASS_VIDEO_MEMORY)
		class_number = call->rm->host->is_admin(call->caller) ? CLASS_WHOLE_CARD : CLASS_SYSTEM_MEMORY;
	if (status == RM_OK)
		status = object_add(call->rm, parent, &handle, class_number, &object);
	put32(at, HOST_NEW, handle);
	put32(at, HOST_STATUS, status);
}

/* D12: another client's memory is free to the same process, and to others when its owner shared it. */
static bool may_dup(const struct rm *rm, const struct object *from, uint32_t client)
{
	const struct object *giver = object_find(rm, from->client, from->client);
	const struct object *taker = object_find(rm, client, client);

	return from->is_shared || giver->pid == taker->pid;
}

static uint32_t dup_into(const struct call *call, const unsigned char *at, uint32_t *handle)
{
	struct object *parent, *copy, *from;
	uint32_t status = call_object(call, get32(at, DUP_CLIENT), get32(at, DUP_PARENT), &parent);

	if (status != RM_OK)
		return status;
	from = object_find(call->rm, get32(at, DUP_FROM_CLIENT), get32(at, DUP_FROM));
	if (!from)
		return RM_NO_SUCH_OBJECT;
	if (!may_dup(call->rm, from, parent->client))
		return RM_NOT_PERMITTED;
	if (from->class_number != CLASS_VIDEO_MEMORY && from->class_number != CLASS_SYSTEM_MEMORY)
		return RM_NOT_SUPPORTED;
	if (!memory_has_card(parent))
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

void alloc_share(const struct call *call, unsigned char *at)
{
	struct object *object;
	uint32_t status = call_object(call, get32(at, SHARE_CLIENT), get32(at, SHARE_OBJECT), &object);

	if (status == RM_OK)
		object->is_shared = get16(at, SHARE_TYPE) != SHARE_WITH_NONE;
	put32(at, SHARE_STATUS, status);
}

/* D11: freeing an unknown handle succeeds, as long as the client exists. */
void alloc_free(const struct call *call, unsigned char *at)
{
	struct object *object;
	uint32_t status = call_object(call, get32(at, FREE_ROOT), get32(at, FREE_OLD), &object);

	if (status == RM_OK)
		object_free(call->rm, object);
	put32(at, FREE_STATUS, status == RM_NO_SUCH_OBJECT ? RM_OK : status);
}
