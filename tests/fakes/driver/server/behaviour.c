#include "behaviour.h"

#include <string.h>

#include "call.h"

/* Larger parameters are refused: NVIDIA's own bound on the wrapped ones. */
enum { LARGEST = 16384 };

enum escape {
	ESCAPE_ALLOC_MEMORY = 0x27,
	ESCAPE_FREE = 0x29,
	ESCAPE_CONTROL = 0x2A,
	ESCAPE_ALLOC = 0x2B,
	ESCAPE_DUP = 0x34,
	ESCAPE_SHARE = 0x35,
	ESCAPE_VID_HEAP = 0x4A,
	ESCAPE_CARD_INFO = 200,
	ESCAPE_REGISTER_FD = 201,
	ESCAPE_CHECK_VERSION = 210,
	ESCAPE_XFER = 211,
	ESCAPE_DMABUF = 217,
};

struct rm *rm_new(const struct rm_host *host, const struct layout *layout, struct rm_card *cards, uint32_t count)
{
	struct rm *rm = host->take(sizeof(*rm));

	if (!rm)
		return NULL;
	rm->host = host;
	rm->layout = layout;
	rm->cards = cards;
	rm->card_count = count;
	return rm;
}

void rm_end(struct rm *rm)
{
	const struct rm_host *host = rm->host;

	host->give(rm->buckets);
	host->give(rm);
}

struct rm_file *rm_open(struct rm *rm, enum rm_kind kind, uint32_t card)
{
	struct rm_file *file = rm->host->take(sizeof(*file));

	if (!file)
		return NULL;
	file->kind = kind;
	file->card = card;
	rm->counts.files++;
	return file;
}

void rm_release(struct rm *rm, struct rm_file *file)
{
	while (file->clients)
		object_free(rm, file->clients);
	uvm_release(rm, file);
	export_release(rm, file);
	rm->counts.files--;
	rm->host->give(file);
}

void rm_refuse(struct rm *rm, uint32_t status, uint32_t times)
{
	rm->refusal = status;
	rm->refusals_left = times;
}

struct rm_counts rm_count(const struct rm *rm)
{
	return rm->counts;
}

void rm_each_holding(const struct rm *rm, rm_holding *tell, void *to)
{
	for (const struct memory *memory = rm->memories; memory; memory = memory->next) {
		const struct object *holder = memory->holders;
		const struct object *client = holder ? object_find(rm, holder->client, holder->client) : NULL;

		tell(to, memory->card, client ? client->pid : 0, memory->bytes);
	}
}

struct object *call_client(const struct call *call, uint32_t handle)
{
	struct object *client = object_find(call->rm, handle, handle);

	if (!client || client->parent)
		return NULL;
	if (client->file == call->file)
		return client;
	/* A card's file speaks for the control file it was registered with. From user space the descriptor says
	 * only which process that was. */
	if (call->file->kind == RM_CARD && call->file->is_ready
	    && client->pid == call->rm->host->process(call->caller))
		return client;
	return NULL;
}

uint32_t call_object(const struct call *call, uint32_t client, uint32_t handle, struct object **found)
{
	if (!call_client(call, client))
		return RM_BAD_CLIENT;
	*found = object_find(call->rm, client, handle);
	return *found ? RM_OK : RM_NO_SUCH_OBJECT;
}

uint32_t call_read(const struct call *call, void *to, uint64_t from, size_t bytes)
{
	if (!from)
		return RM_BAD_ARGUMENT;
	return call->rm->host->read_parameters(call->caller, to, from, bytes) ? RM_OK : RM_BAD_ADDRESS;
}

uint32_t call_write(const struct call *call, uint64_t to, const void *from, size_t bytes)
{
	return call->rm->host->write(call->caller, to, from, bytes) ? RM_OK : RM_BAD_ADDRESS;
}

static int card_info(const struct call *call, unsigned char *at, size_t size)
{
	struct rm *rm = call->rm;

	memset(at, 0, size - size % CARD_SIZE);
	if (size / CARD_SIZE < rm->card_count)
		return -RM_EINVAL;
	for (uint32_t i = 0; i < rm->card_count; i++, at += CARD_SIZE) {
		at[CARD_VALID] = 1;
		at[CARD_BUS] = (unsigned char)(control_gpu_id(i) >> 8);
		put16(at, CARD_VENDOR, 0x10DE);
		put16(at, CARD_DEVICE, 0x1DB1);	/* a V100-SXM2-16GB's, as any */
		put32(at, CARD_GPU_ID, control_gpu_id(i));
		put64(at, CARD_FB_SIZE, rm->cards[i].total);
		put32(at, CARD_MINOR, rm->cards[i].minor);
	}
	return 0;
}

/* On a card's file, once, and with a descriptor of an nvidiactl of this driver. */
static int register_fd(const struct call *call, const unsigned char *at)
{
	if (call->file->kind != RM_CARD || call->file->is_ready)
		return -RM_EINVAL;
	if (!call->rm->host->is_control(call->caller, (int32_t)get32(at, 0)))
		return -RM_EINVAL;
	call->file->is_ready = true;
	return 0;
}

/* The size must be that of the structure, to the byte. */
static bool is_right_size(const struct layout *layout, uint32_t escape, size_t size)
{
	switch (escape) {
	case ESCAPE_ALLOC:
		return size == ALLOC_SIZE || size == layout->alloc_long_size;
	case ESCAPE_ALLOC_MEMORY:
		return size == HOST_SIZE;
	case ESCAPE_FREE:
		return size == FREE_SIZE;
	case ESCAPE_DUP:
		return size == DUP_SIZE;
	case ESCAPE_SHARE:
		return size == SHARE_SIZE;
	case ESCAPE_CONTROL:
		return size == CONTROL_SIZE;
	case ESCAPE_VID_HEAP:
		return size == HEAP_SIZE;
	default:
		return false;
	}
}

static bool is_right_file(enum rm_kind kind, uint32_t escape)
{
	return kind == (escape == ESCAPE_ALLOC_MEMORY ? RM_CARD : RM_CONTROL);
}

uint32_t rm_ioctl(void *stack, struct rm *rm, const struct call *file, uint32_t command, void *data, uint32_t size)
{
	(void)stack;
	if (!is_right_size(rm->layout, command, size) || !is_right_file(file->file->kind, command))
		return RM_BAD_ARGUMENT;
	switch (command) {
	case ESCAPE_ALLOC:
		alloc_object(file, data, size != ALLOC_SIZE);
		return RM_OK;
	case ESCAPE_ALLOC_MEMORY:
		alloc_host(file, data);
		return RM_OK;
	case ESCAPE_FREE:
		alloc_free(file, data);
		return RM_OK;
	case ESCAPE_DUP:
		alloc_dup(file, data);
		return RM_OK;
	case ESCAPE_SHARE:
		alloc_share(file, data);
		return RM_OK;
	case ESCAPE_CONTROL:
		control(file, data);
		return RM_OK;
	case ESCAPE_VID_HEAP:
		alloc_heap(file, data);
		return RM_OK;
	default:
		return RM_BAD_ARGUMENT;
	}
}

static int export_dmabuf(const struct call *call, unsigned char *at, size_t size)
{
	if (size != call->rm->layout->dmabuf_size || call->file->kind != RM_CARD)
		return -RM_EINVAL;
	put32(at, size - DMABUF_END_AND_STATUS, nv_dma_buf_export((void *)(uintptr_t)call, at));
	return 0;
}

/* What the driver's own half for Linux answers by itself, and what it hands on. */
static int escape_into(const struct call *call, uint32_t escape, unsigned char *at, size_t size)
{
	switch (escape) {
	case ESCAPE_CARD_INFO:
		return call->file->kind == RM_CONTROL ? card_info(call, at, size) : -RM_EINVAL;
	case ESCAPE_REGISTER_FD:
		return size == sizeof(int32_t) ? register_fd(call, at) : -RM_EINVAL;
	case ESCAPE_CHECK_VERSION:	/* every version is right */
		return call->file->kind == RM_CONTROL ? 0 : -RM_EINVAL;
	case ESCAPE_DMABUF:
		return export_dmabuf(call, at, size);
	default:
		return rm_ioctl(NULL, call->rm, call, escape, at, (uint32_t)size) ? -RM_EINVAL : 0;
	}
}

/* The parameter comes in whole, and goes out whole even when the call failed, as in the driver. */
static int escape_at(const struct call *call, uint32_t escape, uint64_t argument, size_t size)
{
	const struct rm_host *host = call->rm->host;
	unsigned char *at = host->take(size ? size : 1);
	int error;

	if (!at)
		return -RM_ENOMEM;
	if (host->read(call->caller, at, argument, size)) {
		error = escape_into(call, escape, at, size);
		if (!host->write(call->caller, argument, at, size))
			error = -RM_EFAULT;
	} else {
		error = -RM_EFAULT;
	}
	host->give(at);
	return error;
}

int rm_call(struct rm *rm, struct rm_file *file, const struct rm_caller *caller, uint32_t command, uint64_t argument)
{
	struct call call = { rm, file, caller };
	unsigned char wrapper[XFER_SIZE];
	uint32_t escape = command & 0xFF;	/* the driver does not look at the letter */
	size_t size = command >> 16 & 0x3FFF;

	rm->counts.calls++;
	if (file->kind == RM_UVM)
		return uvm_ioctl(&call, command, argument);
	if (escape == ESCAPE_XFER) {
		if (size != XFER_SIZE)
			return -RM_EINVAL;
		if (!rm->host->read(caller, wrapper, argument, sizeof(wrapper)))
			return -RM_EFAULT;
		escape = get32(wrapper, XFER_COMMAND);
		size = get32(wrapper, XFER_LENGTH);
		argument = get64(wrapper, XFER_POINTER);
		if (size > LARGEST)
			return -RM_EINVAL;
	}
	return escape_at(&call, escape, argument, size);
}
