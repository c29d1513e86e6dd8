/*
 * cost BATCHES CALLS: nanoseconds that a call takes, the fewest of any batch, on an open control file with a device: one whose
 * number that is not watched, a control that is passed on, a report of memory, and 2 MiB taken and freed. One line, in this order.
 */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "rm.h"

enum { UNWATCHED = 0x5E, PASSED = 0x2080018E, PIECE = 2 << 20, MISUSE = 2, TICKS = 10 };

static struct rm rm;

static void unwatched(void)
{
	uint32_t parameters[6] = { 0 };

	rm_ioctl(&rm, rm.control, UNWATCHED, parameters, sizeof(parameters));
}

static void passed(void)
{
	uint32_t parameters[2] = { 0 };

	rm_control(&rm, rm.subdevice, PASSED, parameters, sizeof(parameters));
}

static void report(void)
{
	static const uint32_t indices[] = { NV_TOTAL_RAM, NV_HEAP_FREE };
	uint32_t kib[2];

	if (rm_report(&rm, indices, kib, 2) != 0)
		rm_die("FB_GET_INFO", 1);
}

static void take_and_free(void)
{
	uint32_t object;

	if (rm_take(&rm, PIECE, &object) != 0 || rm_free(&rm, object) != 0)
		rm_die("2 MiB", 1);
}

static double now(void)
{
	struct timespec at;

	clock_gettime(CLOCK_MONOTONIC, &at);
	return (double)at.tv_sec * 1e9 + (double)at.tv_nsec;
}

/* A machine that had no time to measure its clock counts timer interrupts, four milliseconds apart. */
static double tick(void)
{
	struct timespec step;

	clock_getres(CLOCK_MONOTONIC, &step);
	return (double)step.tv_sec * 1e9 + (double)step.tv_nsec;
}

static double least(void (*call)(void), long batches, long calls)
{
	double found = 1e18, enough = TICKS * tick();

	for (long i = 0; i < batches; i++) {
		double began = now(), took;
		long done = 0;

		do {
			for (long j = 0; j < calls; j++)
				call();
			done += calls;
			took = now() - began;
		} while (took < enough);
		took /= (double)done;
		found = took < found ? took : found;
	}
	return found;
}

int main(int count, char **words)
{
	static void (*const calls[])(void) = { unwatched, passed, report, take_and_free };

	if (count != 3)
		return MISUSE;
	rm = rm_plain();
	rm_start(&rm);
	for (unsigned i = 0; i < sizeof(calls) / sizeof(*calls); i++)
		printf("%.0f%c", least(calls[i], atol(words[1]), atol(words[2])), i == 3 ? '\n' : ' ');
	return EXIT_SUCCESS;
}
