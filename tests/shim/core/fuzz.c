/*
 * fuzz CALLS SEED: malformed calls. Each starts as a proper one, and then has its size, its bytes, its pointer or its
 * wrapper changed; or is noise altogether. Caller's memory ends, and nothing can be read beyond. The small driver does what
 * it understands; after every call what is charged is what exists, and when the files are closed it is nothing.
 */
#include <stdio.h>

#include "plain_ops.h"
#include "small_driver.h"

#define BASE ((uint64_t)0x7F0000000000)
#define SIZE 8192
#define AT (BASE + 256)
#define NESTED (BASE + 2048)
#define WRAPPER (BASE + 128)
#define FILES 3
#define LIMIT ((uint64_t)256 << 20)

static struct core core;
static struct plain_budget budget;
static struct small_driver driver;
static struct core_file files[FILES];
static struct core_cards cards;
static uint32_t clients[FILES];
static unsigned char memory[SIZE];
static uint64_t answered, refused_copies, happened;
static unsigned random_state;

static unsigned below(unsigned end)
{
	return (unsigned)rand_r(&random_state) % end;
}

static bool is_readable(uint64_t from, size_t size)
{
	if (from >= BASE && from - BASE <= SIZE && size <= SIZE - (from - BASE))
		return true;
	refused_copies++;
	return false;
}

static bool driver_copy_in(void *to, uint64_t from, size_t size)
{
	if (!is_readable(from, size))
		return false;
	memcpy(to, memory + (from - BASE), size);
	return true;
}

static bool driver_copy_out(uint64_t to, const void *from, size_t size)
{
	if (!is_readable(to, size))
		return false;
	memcpy(memory + (to - BASE), from, size);
	return true;
}

static int copy_in(void *context, void *to, uint64_t from, size_t size)
{
	(void)context;
	return driver_copy_in(to, from, size) ? 0 : -1;
}

static int copy_out(void *context, uint64_t to, const void *from, size_t size)
{
	(void)context;
	return driver_copy_out(to, from, size) ? 0 : -1;
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

static void put(uint64_t at, uint64_t value, size_t size)
{
	memcpy(memory + (at - BASE), &value, size);
}

static void call(unsigned file, uint32_t request, uint64_t argument)
{
	struct core_call known;

	if (!core_watches(request)) {
		small_ioctl(&driver, (int)file, request, argument);
	} else if (core_before(&core, &files[file], &known, request, argument) == CORE_FORWARD) {
		core_after(&core, &files[file], &known, small_ioctl(&driver, (int)file, request, argument));
	} else {
		answered++;
	}
}

static uint32_t request_of(uint32_t number, uint32_t size)
{
	return (uint32_t)below(4) << 30 | size << 16 | (below(8) ? 'F' : below(256)) << 8 | number;
}

static uint32_t proper_handle(void)
{
	static const uint32_t handles[] = { 0, 1, 2, 0x11, 0x12, 0x13, 0xCAF00001, 0xCAF00002 };

	return handles[below(8)];
}

/* 0 .. 128 MiB; seldom more than any card has. */
static uint64_t some_bytes(void)
{
	return below(16) ? (uint64_t)below(1 << 27) : (uint64_t)rand_r(&random_state) << below(40);
}

static uint32_t make_alloc(unsigned file)
{
	static const uint32_t classes[] = { 0x40, 0x40, 0x40, 0x40, 0x80, 0x2080, 0x41, 0x3E, 0xC2, 0x82, 0x42, 0xB1 };
	bool is_short = below(3) == 0;

	put(AT, clients[file], 4);
	put(AT + 4, below(8) ? 1 + below(2) : proper_handle(), 4);
	put(AT + 8, below(3) ? 0 : proper_handle(), 4);
	put(AT + 12, classes[below(12)], 4);
	if (memory[AT - BASE + 12] == 0x80)
		put(AT + 4, clients[file], 4);
	put(AT + 16, NESTED, 8);
	put(NESTED + 64, some_bytes(), 8);
	return request_of(0x2B, is_short ? 32 : 48);
}

static uint32_t make_heap(unsigned file)
{
	static const uint32_t functions[] = { 2, 2, 14, 14, 3, 5, 6, 19 };
	uint32_t function = functions[below(8)];

	put(AT, clients[file], 4);
	put(AT + 4, 1 + below(2), 4);
	put(AT + 8, function, 4);
	put(AT + 44, proper_handle(), 4);
	put(AT + 56, below(8) ? 0 : 1u << 25, 4);
	put(AT + (function == 2 ? 88 : 80), some_bytes(), 8);
	return request_of(0x4A, 184);
}

static uint32_t make_dup(unsigned file)
{
	put(AT, clients[file], 4);
	put(AT + 4, 1, 4);
	put(AT + 8, proper_handle(), 4);
	put(AT + 12, clients[below(FILES)], 4);
	put(AT + 16, proper_handle(), 4);
	return request_of(0x34, 28);
}

static uint32_t make_free(unsigned file)
{
	put(AT, clients[file], 4);
	put(AT + 8, proper_handle(), 4);
	return request_of(0x29, 16);
}

static uint32_t make_control(unsigned file)
{
	static const uint32_t commands[] = { 0x20801301, 0x20801303, 0x205, 0x202, 0x20800A01 };
	uint32_t command = commands[below(5)];

	put(AT, clients[file], 4);
	put(AT + 4, 1, 4);
	put(AT + 8, command, 4);
	put(AT + 16, NESTED, 8);
	put(AT + 24, command == 0x20801301 ? 16 : 1028, 4);
	put(NESTED, below(4) ? below(140) : (uint32_t)rand_r(&random_state) * 3, 4);
	if (command == 0x20801301)
		put(NESTED + 8, NESTED + 512, 8);
	return request_of(0x2A, 32);
}

static uint32_t make_proper(unsigned file)
{
	unsigned what = below(100);

	memset(memory + (AT - BASE), 0, 256);
	memset(memory + (NESTED - BASE), 0, 128);
	if (what < 40)
		return make_alloc(file);
	if (what < 60)
		return make_heap(file);
	if (what < 70)
		return make_dup(file);
	if (what < 88)
		return make_free(file);
	if (what < 98)
		return make_control(file);
	return request_of(200, 72 * below(40));
}

/* Null, the last address, just before and behind the end, inside the kernel, anything. */
static uint64_t wild_pointer(void)
{
	switch (below(6)) {
	case 0: return 0;
	case 1: return ~(uint64_t)0 - below(300);
	case 2: return BASE + SIZE - below(300);
	case 3: return BASE + SIZE;
	case 4: return 0xFFFF800000000000u + below(1 << 20);
	default: return (uint64_t)rand_r(&random_state) << 17 ^ (uint64_t)rand_r(&random_state);
	}
}

static uint32_t spoil(uint32_t request, uint64_t *argument)
{
	switch (below(8)) {
	case 0: return (request & 0xC000FFFF) | below(0x4000) << 16;
	case 1: return request + (uint32_t)below(17) * 0x10000 - 0x80000;
	case 2: return (request & 0xFFFFFF00) | below(256);
	case 3: *argument = wild_pointer(); break;
	case 4: put(AT + 16, wild_pointer(), 8); break;
	case 5:
		for (unsigned i = below(8); i < 8; i++)
			put(AT + below(192), below(256), 1);
		break;
	case 6: put(NESTED + 8 * below(16), (uint64_t)rand_r(&random_state) << below(34), 8); break;
	default:
		for (unsigned i = 0; i < 512; i++)
			memory[below(SIZE)] = (unsigned char)below(256);
	}
	return request;
}

static uint32_t wrap(uint32_t request, uint64_t *argument)
{
	put(WRAPPER, below(16) ? request & 0xFF : request, 4);
	put(WRAPPER + 4, request >> 16 & 0x3FFF, 4);
	put(WRAPPER + 8, *argument, 8);
	*argument = WRAPPER;
	return request_of(211, below(16) ? 16 : below(64));
}

/* In the driver's order the struct is written last: where the pointer leads into it, the size is lost. Not here. */
static bool overlaps(uint64_t pointer)
{
	return pointer + 128 > BASE && pointer < BASE + 1024;
}

static void round_of(unsigned file)
{
	uint64_t argument = AT, pointer;
	uint32_t request = make_proper(file);

	if (below(3))
		request = spoil(request, &argument);
	memcpy(&pointer, memory + (AT - BASE) + 16, sizeof(pointer));
	if (overlaps(pointer))
		put(AT + 16, 0, 8);
	if (below(4) == 0)
		request = wrap(request, &argument);
	call(file, request, argument);
}

static void open_file(unsigned file)
{
	files[file] = (struct core_file){ .owner = &budget, .cards = &cards };
	memset(memory, 0, SIZE);
	put(AT + 12, 0x41, 4);
	call(file, 0xC030462B, AT);
	memcpy(&clients[file], memory + (AT - BASE) + 8, 4);
	for (uint32_t device = 1; device <= 2; device++) {
		put(AT, clients[file], 4);
		put(AT + 4, clients[file], 4);
		put(AT + 8, device, 4);
		put(AT + 12, 0x80, 4);
		call(file, 0xC030462B, AT);
	}
}

static void compare(const char *when, unsigned long number)
{
	if (budget.limit.used_bytes == driver.bytes && driver.most_bytes <= LIMIT && budget.limit.peak_bytes <= LIMIT)
		return;
	fprintf(stderr, "fuzz: %s %lu: charged %llu, there are %llu and were %llu\n", when, number,
		(unsigned long long)budget.limit.used_bytes, (unsigned long long)driver.bytes,
		(unsigned long long)driver.most_bytes);
	exit(1);
}

int main(int count, char **words)
{
	unsigned long calls = count == 3 ? strtoul(words[1], NULL, 10) : 0;

	random_state = count == 3 ? (unsigned)strtoul(words[2], NULL, 10) : 0;
	plain_begin(&budget, LIMIT);
	small_begin(&driver);
	driver.copy_in = driver_copy_in;
	driver.copy_out = driver_copy_out;
	if (!calls || !core_begin(&core, &ops, &budget, "580.95.05"))
		return 2;
	for (unsigned file = 0; file < FILES; file++)
		open_file(file);
	for (unsigned long i = 0; i < calls; i++) {
		unsigned file = below(FILES);

		round_of(file);
		compare("after call", i);
		if (below(200))
			continue;
		small_close(&driver, (int)file);
		core_release(&core, &files[file]);
		open_file(file);
	}
	happened = driver.made;
	for (unsigned file = 0; file < FILES; file++) {
		small_close(&driver, (int)file);
		core_release(&core, &files[file]);
	}
	compare("at the end of", calls);
	printf("calls %lu made %llu answered %llu unreadable %llu used %llu\n", calls, (unsigned long long)happened,
	       (unsigned long long)answered, (unsigned long long)refused_copies,
	       (unsigned long long)budget.limit.used_bytes);
	core_end(&core);
	return budget.limit.used_bytes != 0;
}
