/*
 * race careful|reckless THREADS ROUNDS SEED: threads that make, free, duplicate and close at once, in few handles which come
 * again at once, on one core and the small driver. What exists never exceeds the limit, and at the end nothing is charged.
 *
 * careful   nothing is freed before the call that makes it has ended: whenever all rest, what is charged is what exists
 * reckless  anything is freed at any time, twice as well: what is charged is never less than what exists
 */
#include <stdio.h>

#include "plain_ops.h"
#include "small_driver.h"

#define MOST_THREADS 8
#define LIMIT ((uint64_t)24 << 20)
#define REST_EVERY 500
#define DEVICES 2
#define SLOTS 5

enum state { NONE, BEING_MADE, THERE, IN_USE };

struct slot {
	int state;
	uint32_t handle;
};

static struct core core;
static struct plain_budget budget;
static struct small_driver driver;
static struct core_file files[MOST_THREADS];
static struct core_cards cards;
static uint32_t clients[MOST_THREADS];
static struct slot slots[MOST_THREADS][DEVICES][SLOTS];
static pthread_rwlock_t gates[MOST_THREADS]; /* closing a file waits for the calls on it, as the kernel does */
static pthread_rwlock_t device_gates[MOST_THREADS][DEVICES];
static bool is_careful;
static pthread_barrier_t rest;
static unsigned thread_count, rounds, seed;
static uint64_t refusals;

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

static bool driver_copy_in(void *to, uint64_t from, size_t size)
{
	return copy_in(NULL, to, from, size) == 0;
}

static bool driver_copy_out(uint64_t to, const void *from, size_t size)
{
	return copy_out(NULL, to, from, size) == 0;
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

static void put(unsigned char *call, size_t at, uint64_t value, size_t size)
{
	memcpy(call + at, &value, size);
}

/* True when the driver did it. */
static bool ioctl_of(unsigned file, uint32_t number, size_t size, unsigned char *call, size_t status_at)
{
	uint32_t request = (uint32_t)(size << 16) | 'F' << 8 | number, status;
	struct core_call known;

	if (core_before(&core, &files[file], &known, request, (uintptr_t)call) == CORE_ANSWERED) {
		__atomic_fetch_add(&refusals, 1, __ATOMIC_RELAXED);
		return false;
	}
	core_after(&core, &files[file], &known, small_ioctl(&driver, (int)file, request, (uintptr_t)call));
	memcpy(&status, call + status_at, sizeof(status));
	return status == 0;
}

/* The handle it got, or 0. */
static uint32_t alloc(unsigned file, uint32_t parent, uint32_t handle, uint32_t class, uint64_t bytes)
{
	unsigned char call[48] = { 0 }, memory[128] = { 0 };

	put(call, 0, class == 0x41 ? 0 : clients[file], 4);
	put(call, 4, parent, 4);
	put(call, 8, handle, 4);
	put(call, 12, class, 4);
	put(call, 16, (uintptr_t)memory, 8);
	put(call, 40, 1, 4);
	put(memory, 64, bytes, 8);
	if (!ioctl_of(file, 0x2B, sizeof(call), call, 40))
		return 0;
	memcpy(&handle, call + 8, sizeof(handle));
	return handle;
}

static bool free_one(unsigned file, uint32_t handle)
{
	unsigned char call[16] = { 0 };

	put(call, 0, clients[file], 4);
	put(call, 8, handle, 4);
	return ioctl_of(file, 0x29, sizeof(call), call, 12);
}

static uint32_t dup_one(unsigned file, uint32_t parent, uint32_t handle, unsigned from, uint32_t source)
{
	unsigned char call[28] = { 0 };

	put(call, 0, clients[file], 4);
	put(call, 4, parent, 4);
	put(call, 8, handle, 4);
	put(call, 12, clients[from], 4);
	put(call, 16, source, 4);
	if (!ioctl_of(file, 0x34, sizeof(call), call, 24))
		return 0;
	memcpy(&handle, call + 8, sizeof(handle));
	return handle;
}

static void open_file(unsigned file)
{
	files[file] = (struct core_file){ .owner = &budget, .cards = &cards };
	clients[file] = alloc(file, 0, 0, 0x41, 0);
	for (uint32_t device = 0; device < DEVICES; device++)
		alloc(file, clients[file], 1 + device, 0x80, 0);
	memset(slots[file], 0, sizeof(slots[file]));
}

static void close_file(unsigned file)
{
	pthread_rwlock_wrlock(&gates[file]);
	small_close(&driver, (int)file);
	core_release(&core, &files[file]);
	open_file(file);
	pthread_rwlock_unlock(&gates[file]);
}

static bool changes(struct slot *slot, int from, int to)
{
	return __atomic_compare_exchange_n(&slot->state, &from, to, false, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED);
}

static void becomes(struct slot *slot, uint32_t handle)
{
	slot->handle = handle;
	__atomic_store_n(&slot->state, handle ? THERE : NONE, __ATOMIC_RELEASE);
}

static uint64_t some_bytes(unsigned *random)
{
	return ((uint64_t)1 << (rand_r(random) % 8 + 16)) + (rand_r(random) % 8 == 0);
}

static void careful_dup(unsigned file, unsigned device, struct slot *slot, unsigned *random)
{
	unsigned from = (unsigned)rand_r(random) % thread_count, other = (unsigned)rand_r(random) % DEVICES;
	struct slot *source = &slots[from][other][rand_r(random) % SLOTS];

	/* Only tried: these gates come in no order. */
	if (pthread_rwlock_tryrdlock(&gates[from]))
		return;
	if (pthread_rwlock_tryrdlock(&device_gates[from][other]))
		goto leave_file;
	if (changes(source, THERE, IN_USE)) {
		if (changes(slot, NONE, BEING_MADE))
			becomes(slot, dup_one(file, 1 + device, 0, from, source->handle));
		becomes(source, source->handle);
	}
	pthread_rwlock_unlock(&device_gates[from][other]);
leave_file:
	pthread_rwlock_unlock(&gates[from]);
}

/* While its memory goes with it, the driver gives the handles out below the other device. */
static void careful_device(unsigned file, unsigned device)
{
	pthread_rwlock_wrlock(&device_gates[file][device]);
	free_one(file, 1 + device);
	memset(slots[file][device], 0, sizeof(slots[file][device]));
	alloc(file, clients[file], 1 + device, 0x80, 0);
	pthread_rwlock_unlock(&device_gates[file][device]);
}

static void careful_round(unsigned file, unsigned doing, unsigned *random)
{
	unsigned device = (unsigned)rand_r(random) % DEVICES;
	struct slot *slot = &slots[file][device][rand_r(random) % SLOTS];

	if (doing > 97) {
		careful_device(file, device);
		return;
	}
	pthread_rwlock_rdlock(&device_gates[file][device]);
	if (doing < 45 && changes(slot, NONE, BEING_MADE)) {
		becomes(slot, alloc(file, 1 + device, 0, 0x40, some_bytes(random)));
	} else if (doing < 85 && changes(slot, THERE, IN_USE)) {
		free_one(file, slot->handle);
		becomes(slot, 0);
	} else if (doing >= 85) {
		careful_dup(file, device, slot, random);
	}
	pthread_rwlock_unlock(&device_gates[file][device]);
}

/* Memory is 0x11 .. 0x16, or the driver's lowest; devices are 1 and 2. */
static void reckless_round(unsigned file, unsigned doing, unsigned *random)
{
	uint32_t handle = 0x11 + (uint32_t)rand_r(random) % 6, device = 1 + (uint32_t)rand_r(random) % DEVICES;
	uint32_t chosen = rand_r(random) % 2 ? handle : 0xCAF00001 + (uint32_t)rand_r(random) % 4;

	if (doing < 50)
		alloc(file, device, rand_r(random) % 2 ? handle : 0, 0x40, some_bytes(random));
	else if (doing < 92)
		free_one(file, chosen);
	else if (doing < 96)
		free_one(file, device);
	else
		alloc(file, clients[file], device, 0x80, 0);
}

static void round_of(unsigned *random)
{
	unsigned file = (unsigned)rand_r(random) % thread_count, doing = (unsigned)rand_r(random) % 100;

	if (doing == 0) {
		close_file(file);
		return;
	}
	pthread_rwlock_rdlock(&gates[file]);
	if (is_careful)
		careful_round(file, doing, random);
	else
		reckless_round(file, doing, random);
	pthread_rwlock_unlock(&gates[file]);
}

static void compare(const char *when, bool is_exact)
{
	uint64_t charged = budget.limit.used_bytes;

	if ((is_exact ? charged == driver.bytes : charged >= driver.bytes) && driver.most_bytes <= LIMIT)
		return;
	fprintf(stderr, "race: %s: charged %llu, there are %llu and were %llu\n", when,
		(unsigned long long)charged, (unsigned long long)driver.bytes,
		(unsigned long long)driver.most_bytes);
	exit(1);
}

static void *run(void *number)
{
	unsigned random = seed + (unsigned)(uintptr_t)number * 7919;

	for (unsigned i = 1; i <= rounds; i++) {
		round_of(&random);
		if (i % REST_EVERY)
			continue;
		if (pthread_barrier_wait(&rest) == PTHREAD_BARRIER_SERIAL_THREAD)
			compare("at rest", is_careful);
		pthread_barrier_wait(&rest);
	}
	return NULL;
}

int main(int count, char **words)
{
	pthread_t threads[MOST_THREADS];

	if (count != 5 || (thread_count = (unsigned)atoi(words[2])) > MOST_THREADS)
		return 2;
	is_careful = strcmp(words[1], "careful") == 0;
	rounds = (unsigned)atoi(words[3]);
	seed = (unsigned)atoi(words[4]);
	plain_begin(&budget, LIMIT);
	small_begin(&driver);
	driver.copy_in = driver_copy_in;
	driver.copy_out = driver_copy_out;
	if (!core_begin(&core, &ops, &budget, "580.95.05"))
		return 2;
	pthread_barrier_init(&rest, NULL, thread_count);
	for (unsigned i = 0; i < thread_count; i++) {
		pthread_rwlock_init(&gates[i], NULL);
		for (unsigned device = 0; device < DEVICES; device++)
			pthread_rwlock_init(&device_gates[i][device], NULL);
		open_file(i);
	}
	for (unsigned i = 0; i < thread_count; i++)
		pthread_create(&threads[i], NULL, run, (void *)(uintptr_t)i);
	for (unsigned i = 0; i < thread_count; i++)
		pthread_join(threads[i], NULL);
	for (unsigned i = 0; i < thread_count; i++) {
		small_close(&driver, (int)i);
		core_release(&core, &files[i]);
	}
	compare("at the end", true);
	printf("made %llu refused %llu peak %llu used %llu\n", (unsigned long long)driver.made,
	       (unsigned long long)refusals, (unsigned long long)budget.limit.peak_bytes,
	       (unsigned long long)budget.limit.used_bytes);
	core_end(&core);
	return budget.limit.used_bytes != 0;
}
