#include "call.h"

#include <string.h>

/* Numbers of their own: no size, no direction. Each has its status at the end of its parameters. */
enum uvm {
	UVM_INITIALIZE = 0x30000001,
	UVM_DEINITIALIZE = 0x30000002,
	UVM_MAP_EXTERNAL = 33,
	UVM_FREE = 34,
	UVM_ALLOC_SEMAPHORE_POOL = 68,
	UVM_VALIDATE_VA_RANGE = 72,
};

/* A pool's parameters are those of an external mapping, less an offset, a descriptor and two handles. */
enum { POOL_LESS = 16 };

#define PLAIN(X) \
	X(UVM_INITIALIZE, 16, 8) \
	X(37, 40, 36)		/* REGISTER_GPU */ \
	X(39, 8, 4)		/* PAGEABLE_MEM_ACCESS */ \
	X(UVM_VALIDATE_VA_RANGE, 24, 16) \
	X(73, 24, 16)		/* CREATE_EXTERNAL_RANGE */ \
	X(75, 8, 4)		/* MM_INITIALIZE */

struct shape {
	uint32_t command;
	size_t size, status;
};

static bool shape_of(const struct layout *layout, uint32_t command, struct shape *shape)
{
#define ROW(command, size, status) { command, size, status },
	static const struct shape shapes[] = { PLAIN(ROW) };
#undef ROW

	for (size_t i = 0; i < sizeof(shapes) / sizeof(*shapes); i++) {
		if (shapes[i].command != command)
			continue;
		*shape = shapes[i];
		return true;
	}
	if (command == UVM_MAP_EXTERNAL)
		*shape = (struct shape){ command, layout->uvm_map_size, layout->uvm_map_size - 4u };
	else if (command == UVM_ALLOC_SEMAPHORE_POOL)
		*shape = (struct shape){ command, layout->uvm_map_size - POOL_LESS, layout->uvm_map_size - POOL_LESS - 8u };
	else if (command == UVM_FREE)
		*shape = (struct shape){ command, layout->uvm_free_size, layout->uvm_free_size - 8u };
	else
		return false;
	return true;
}

uint32_t nvUvmInterfaceDupMemory(struct rm *rm, uint32_t client, uint32_t handle, uint32_t *made, void *info)
{
	struct object *object = object_find(rm, client, handle);
	struct duplicate *duplicate;

	(void)info;
	if (!object || object->class_number != CLASS_VIDEO_MEMORY)
		return RM_NO_SUCH_OBJECT;
	duplicate = rm->host->take(sizeof(*duplicate));
	if (!duplicate)
		return RM_NO_ROOM_FOR_STATE;
	*duplicate = (struct duplicate){ ++rm->next_duplicate, object->memory, rm->duplicates };
	duplicate->memory->references++;
	rm->duplicates = duplicate;
	*made = duplicate->handle;
	return RM_OK;
}

uint32_t nvUvmInterfaceFreeDupedHandle(struct rm *rm, uint32_t handle)
{
	for (struct duplicate **at = &rm->duplicates; *at; at = &(*at)->next) {
		struct duplicate *duplicate = *at;

		if (duplicate->handle != handle)
			continue;
		*at = duplicate->next;
		memory_release(rm, duplicate->memory);
		rm->host->give(duplicate);
		return RM_OK;
	}
	return RM_NO_SUCH_OBJECT;
}

/* D14: uvm keeps a reference of its own, which outlives the handle. */
static uint32_t map_external(const struct call *call, const unsigned char *at, size_t size)
{
	struct mapping *mapping = call->rm->host->take(sizeof(*mapping));
	uint32_t status;

	if (!mapping)
		return RM_NO_ROOM_FOR_STATE;
	status = nvUvmInterfaceDupMemory(call->rm, get32(at, size - 12), get32(at, size - 8), &mapping->duplicate, NULL);
	if (status != RM_OK) {
		call->rm->host->give(mapping);
		return status;
	}
	mapping->base = get64(at, 0);
	mapping->next = call->file->mappings;
	call->file->mappings = mapping;
	return RM_OK;
}

/* D15: memory of the machine, which is mapped afterwards. */
static uint32_t alloc_pool(const struct call *call, const unsigned char *at)
{
	struct semaphore_pool *pool = call->rm->host->take(sizeof(*pool));

	if (!pool)
		return RM_NO_ROOM_FOR_STATE;
	*pool = (struct semaphore_pool){ get64(at, 0), get64(at, 8), false, call->file->pools };
	call->file->pools = pool;
	return RM_OK;
}

static struct semaphore_pool *find_pool(const struct rm_file *file, uint64_t base)
{
	struct semaphore_pool *pool = file->pools;

	while (pool && (pool->is_freed || pool->base != base))
		pool = pool->next;
	return pool;
}

bool uvm_has_pool(const struct rm_file *file, uint64_t base, uint64_t length)
{
	const struct semaphore_pool *pool = find_pool(file, base);

	return pool && pool->length == length;
}

static uint32_t unmap(const struct call *call, uint64_t base)
{
	struct semaphore_pool *pool = find_pool(call->file, base);

	if (pool) {
		pool->is_freed = true;
		return RM_OK;
	}
	for (struct mapping **at = &call->file->mappings; *at; at = &(*at)->next) {
		struct mapping *mapping = *at;

		if (mapping->base != base)
			continue;
		*at = mapping->next;
		nvUvmInterfaceFreeDupedHandle(call->rm, mapping->duplicate);
		call->rm->host->give(mapping);
		return RM_OK;
	}
	return RM_BAD_ADDRESS;
}

void uvm_release(struct rm *rm, struct rm_file *file)
{
	while (file->mappings) {
		struct mapping *mapping = file->mappings;

		file->mappings = mapping->next;
		nvUvmInterfaceFreeDupedHandle(rm, mapping->duplicate);
		rm->host->give(mapping);
	}
	while (file->pools) {
		struct semaphore_pool *pool = file->pools;

		file->pools = pool->next;
		rm->host->give(pool);
	}
}

static uint32_t run(const struct call *call, uint32_t command, const unsigned char *at, size_t size)
{
	if (command == UVM_INITIALIZE)
		call->file->is_ready = true;
	if (!call->file->is_ready)
		return RM_ILLEGAL_ACTION;
	if (command == UVM_MAP_EXTERNAL)
		return map_external(call, at, size);
	if (command == UVM_ALLOC_SEMAPHORE_POOL)
		return alloc_pool(call, at);
	if (command == UVM_VALIDATE_VA_RANGE)
		return uvm_has_pool(call->file, get64(at, 0), get64(at, 8)) ? RM_OK : RM_BAD_ADDRESS;
	return command == UVM_FREE ? unmap(call, get64(at, 0)) : RM_OK;
}

int uvm_ioctl(const struct call *call, uint32_t command, uint64_t argument)
{
	const struct rm_host *host = call->rm->host;
	struct shape shape;
	unsigned char *at;
	int error = -RM_EFAULT;

	if (command == UVM_DEINITIALIZE)
		return 0;
	if (!shape_of(call->rm->layout, command, &shape))
		return -RM_EINVAL;
	at = host->take(shape.size);
	if (!at)
		return -RM_ENOMEM;
	if (host->read(call->caller, at, argument, shape.size)) {
		put32(at, shape.status, run(call, command, at, shape.size));
		if (host->write(call->caller, argument, at, shape.size))
			error = 0;
	}
	host->give(at);
	return error;
}
