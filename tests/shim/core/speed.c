/*
 * What the core costs on calls that do not concern it, best of many batches: a number it does not watch, and a
 * control that passes (core_watches, core_before with one copy of 32 bytes, core_after). Both in nanoseconds. The
 * copy is a plain one: what core_ops adds to be safe against wild pointers is not in it, nor is the system call.
 */
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "core.h"

#define BATCHES 101
#define CALLS 20000

static int copy_in(void *context, void *to, uint64_t from, size_t size)
{
	(void)context;
	memcpy(to, (const void *)(uintptr_t)from, size);
	return 0;
}

static double now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return (double)time.tv_sec * 1e9 + (double)time.tv_nsec;
}

/* Volatile, so that the request is not known when this is compiled. */
static double cost_of(struct core *core, struct core_file *file, uint32_t number, void *argument)
{
	volatile uint32_t request = 0xC0204600u | number;
	double best = 1e9;

	for (int batch = 0; batch < BATCHES; batch++) {
		double start = now(), each;

		for (int i = 0; i < CALLS; i++) {
			uint32_t one = request;
			struct core_call call;

			if (!core_watches(one))
				continue;
			if (core_before(core, file, &call, one, (uintptr_t)argument) == CORE_FORWARD)
				core_after(core, file, &call, 0);
		}
		each = (now() - start) / CALLS;
		if (each < best)
			best = each;
	}
	return best;
}

int main(void)
{
	static const struct core_ops ops = { .copy_in = copy_in };
	static struct core core;
	static unsigned char control[32];
	struct core_cards cards = { 0 };
	struct core_file file = { .cards = &cards };

	if (!core_begin(&core, &ops, NULL, "580.95.05"))
		return 1;
	control[8] = 1;
	printf("unwatched %.1f passed %.1f\n", cost_of(&core, &file, 0x4E, control), cost_of(&core, &file, 0x2A, control));
	return 0;
}
