/*
 * sizes CASES SEED: memory asked for with random flags, attributes, sizes, alignments and addresses, by every call and in
 * every layout, from the simulated driver. After every call what is charged is at least what its allocator has pinned, and
 * that is never above the limit. What is freed is given back to the byte.
 */
#include <stdio.h>

#include "behaviour.h"
#include "plain_ops.h"

#define LIMIT ((uint64_t)64 << 30)
#define CARD ((uint64_t)80 << 30)
#define KEPT 8
#define CALL_BYTES 256

enum { CLASS_MEMORY_OF_CARD = 0x40, CLASS_OF_CLIENT = 0x41, CLASS_OF_DEVICE = 0x80, DEVICE = 0x5C000001, OWNER = 1 };
enum { NUMBER_FREE = 0x29, NUMBER_ALLOC = 0x2B, NUMBER_HEAP = 0x4A };
enum { FUNCTION_SIZE = 2, FUNCTION_RANGE = 14, HANDLE_PROVIDED = 0x4000, VIRTUAL = 0x80000, LOCATION = 3 << 25 };

static const unsigned branches[] = { 515, 520, 525, 530, 535, 545, 550, 555, 560, 565, 570, 575, 580, 590, 595 };
static struct core core;
static struct plain_budget budget;
static struct core_file file;
static struct core_cards cards;
static struct rm *rm;
static struct rm_file *opened;
static struct rm_card card;
static const struct layout *layout;
static uint32_t client, kept[KEPT];
static uint64_t random_state, granted, most_pinned;

static uint64_t any(void)
{
	random_state ^= random_state << 13;
	random_state ^= random_state >> 7;
	random_state ^= random_state << 17;
	return random_state;
}

static uint32_t below(uint32_t end)
{
	return (uint32_t)(any() >> 32) % end;
}

static int copy_in(void *context, void *to, uint64_t from, size_t size)
{
	(void)context;
	memcpy(to, (const void *)(uintptr_t)from, size);
	return 0;
}

static int copy_out(void *context, uint64_t to, const void *from, size_t size)
{
	(void)context;
	memcpy((void *)(uintptr_t)to, from, size);
	return 0;
}

static const struct core_ops ops = {
	.copy_in = copy_in,
	.copy_out = copy_out,
	.lock = plain_lock,
	.unlock = plain_unlock,
	.grow = plain_grow,
	.try_charge = plain_try_charge,
	.settle_charge = plain_settle_charge,
	.uncharge = plain_uncharge,
	.usage = plain_usage,
	.groups_most = plain_groups_most,
};

static void *take(size_t bytes)
{
	return calloc(1, bytes);
}

static bool read_memory(const struct rm_caller *caller, void *to, uint64_t from, size_t bytes)
{
	(void)caller;
	memcpy(to, (const void *)(uintptr_t)from, bytes);
	return true;
}

static bool write_memory(const struct rm_caller *caller, uint64_t to, const void *from, size_t bytes)
{
	(void)caller;
	memcpy((void *)(uintptr_t)to, from, bytes);
	return true;
}

static uint32_t process(const struct rm_caller *caller)
{
	(void)caller;
	return 1;
}

static const struct rm_host host = {
	.take = take, .give = free, .read = read_memory, .read_parameters = read_memory, .write = write_memory, .process = process,
};

static void ioctl_of(uint32_t number, size_t size, const unsigned char *call)
{
	const struct rm_caller caller = { &host, NULL };
	uint32_t request = (uint32_t)size << 16 | 'F' << 8 | number;
	struct core_call known;

	if (core_before(&core, &file, &known, request, (uintptr_t)call) == CORE_FORWARD)
		core_after(&core, &file, &known, rm_call(rm, opened, &caller, request, (uintptr_t)call));
}

/* In any layout: the handle that was made, or 0. */
static uint32_t alloc(uint32_t parent, uint32_t handle, uint32_t class, const void *parameters)
{
	bool is_long = below(2);
	size_t status = is_long ? layout->alloc_long_status : layout->alloc_status;
	unsigned char call[CALL_BYTES] = { 0 };

	put32(call, ALLOC_ROOT, client);
	put32(call, ALLOC_PARENT, parent);
	put32(call, ALLOC_NEW, handle);
	put32(call, ALLOC_CLASS, class);
	put64(call, ALLOC_PARAMS, (uintptr_t)parameters);
	put32(call, status, 1);
	ioctl_of(NUMBER_ALLOC, is_long ? layout->alloc_long_size : ALLOC_SIZE, call);
	return get32(call, status) ? 0 : get32(call, ALLOC_NEW);
}

/* Mostly what means something: fixed addresses, hints, and a handle of the driver's choice. */
static uint32_t some_flags(void)
{
	static const uint32_t known[] = { 0x10, 0x80, 0x100, 0x20000, 0x800 };
	uint32_t flags = below(8) ? 0 : (uint32_t)any();

	for (uint32_t i = 0; i < 3; i++)
		flags |= below(3) ? 0 : known[below(5)];
	return flags & ~(uint32_t)(HANDLE_PROVIDED | (below(16) ? VIRTUAL : 0));
}

static uint32_t some_attributes(void)
{
	uint32_t attributes = (below(4) ? 0 : (uint32_t)any()) | below(4) << 23 | (below(3) ? 0 : below(4) << 12);

	return below(16) ? attributes & ~(uint32_t)LOCATION : attributes;
}

static uint32_t some_more_attributes(void)
{
	return ((below(4) ? 0 : (uint32_t)any()) & ~(1u << 24)) | below(4) << 20;
}

/* As many small as large ones, many at the edge of a page; and now and then what no card has. */
static uint64_t some_bytes(void)
{
	uint64_t bytes = (uint64_t)1 << below(below(64) ? 36 : 64);

	return below(2) ? bytes + below(3) - 1 : bytes + any() % bytes;
}

static uint32_t make_memory(void)
{
	unsigned char memory[CALL_BYTES] = { 0 };

	put32(memory, MEMORY_OWNER, OWNER);
	put32(memory, MEMORY_FLAGS, some_flags());
	put32(memory, MEMORY_ATTR, some_attributes());
	put32(memory, MEMORY_ATTR2, some_more_attributes());
	put64(memory, MEMORY_BYTES, below(64) ? some_bytes() : 0);
	put64(memory, MEMORY_ALIGNMENT, some_bytes());
	put64(memory, MEMORY_OFFSET, some_bytes());
	return alloc(DEVICE, 0, CLASS_MEMORY_OF_CARD, memory);
}

static uint32_t make_heap(uint32_t function)
{
	const struct heap_layout *heap = heap_layout_of(function, layout->branch);
	unsigned char call[CALL_BYTES] = { 0 };

	put32(call, HEAP_ROOT, client);
	put32(call, HEAP_PARENT, DEVICE);
	put32(call, HEAP_FUNCTION, function);
	put32(call, HEAP_STATUS, 1);
	put32(call, HEAP_OWNER, OWNER);
	put32(call, HEAP_FLAGS, some_flags());
	put32(call, heap->attr, some_attributes());
	put32(call, heap->attr2, some_more_attributes());
	put64(call, heap->bytes, below(64) ? some_bytes() : 0);
	put64(call, heap->bytes + 8u, some_bytes());
	put64(call, heap->bytes + 16u, some_bytes());
	ioctl_of(NUMBER_HEAP, HEAP_SIZE, call);
	return get32(call, HEAP_STATUS) ? 0 : get32(call, HEAP_MEMORY);
}

static void free_one(uint32_t *handle)
{
	unsigned char call[CALL_BYTES] = { 0 };

	put32(call, FREE_ROOT, client);
	put32(call, FREE_OLD, *handle);
	ioctl_of(NUMBER_FREE, FREE_SIZE, call);
	*handle = 0;
}

static void compare(uint64_t number)
{
	if (card.used <= budget.limit.used_bytes && card.peak <= LIMIT)
		return;
	fprintf(stderr, "sizes: branch %u, case %llu: charged %llu, pinned %llu, at most %llu\n", layout->branch,
		(unsigned long long)number, (unsigned long long)budget.limit.used_bytes,
		(unsigned long long)card.used, (unsigned long long)card.peak);
	exit(1);
}

static void try_one(uint64_t number)
{
	uint32_t *handle = &kept[below(KEPT)], shape = below(4);

	if (*handle)
		free_one(handle);
	*handle = shape < 2 ? make_memory() : make_heap(shape == 2 ? FUNCTION_SIZE : FUNCTION_RANGE);
	granted += *handle != 0;
	compare(number);
}

static void begin(unsigned branch)
{
	char version[16];

	snprintf(version, sizeof(version), "%u.1", branch);
	plain_begin(&budget, LIMIT);
	card = (struct rm_card){ .total = CARD };
	layout = layout_of(branch);
	rm = rm_new(&host, layout, &card, 1);
	opened = rm_open(rm, RM_CONTROL, 0);
	file = (struct core_file){ .owner = &budget, .cards = &cards };
	client = 0;
	if (!core_begin(&core, &ops, &budget, version) || !(client = alloc(0, 0, CLASS_OF_CLIENT, NULL)) ||
	    !alloc(client, DEVICE, CLASS_OF_DEVICE, NULL))
		exit(2);
}

static void end(void)
{
	rm_release(rm, opened);
	core_release(&core, &file);
	memset(kept, 0, sizeof(kept));
	if (card.peak > most_pinned)
		most_pinned = card.peak;
	if (card.used || budget.limit.used_bytes)
		exit(3);
	core_end(&core);
	rm_end(rm);
}

int main(int count, char **words)
{
	const unsigned ways = sizeof(branches) / sizeof(*branches);

	if (count != 3)
		return 2;
	random_state = strtoull(words[2], NULL, 10) * 2 + 1;
	for (unsigned way = 0; way < ways; way++) {
		begin(branches[way]);
		for (uint64_t i = 0; i < strtoull(words[1], NULL, 10) / ways; i++)
			try_one(i);
		end();
	}
	printf("granted %llu pinned %llu\n", (unsigned long long)granted, (unsigned long long)(most_pinned >> 20));
	return 0;
}
