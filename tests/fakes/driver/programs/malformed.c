/*
 * malformed COUNT SEED: so many calls of the watched numbers with whatever stands there: any size, any direction, wild and null
 * pointers, random bytes, sometimes with handles and classes that are real. Now and then it opens the file again, gets some
 * memory, says `waiting`, and waits for a line while it holds that, and whatever else it happened to get.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "rm.h"

enum { BYTES = 512, PAGE = 4096, FIELDS = 6, PIECES = 60, STOPS = 10, OPEN_AGAIN = 512, MIB = 1 << 20 };

static uint64_t state;

static uint64_t draw(uint64_t below)
{
	state ^= state << 13;
	state ^= state >> 7;
	state ^= state << 17;
	return state % below;
}

static const unsigned NUMBERS[] = { 0x27, NV_FREE, NV_CONTROL, NV_ALLOC, NV_DUP, NV_VID_HEAP, NV_CARD_INFO, NV_XFER };
static const unsigned RIGHT_SIZES[] = { 56, 16, 32, 48, 28, 184, 2304, 16 }; /* of the numbers above */
static const unsigned SIZES[] = { 0, 16, 24, 28, 32, 40, 48, 56, 72, 120, 128, 184, 2304, 16383 };
static const uint32_t CLASSES[] = { NV_CLIENT, NV_DEVICE, NV_SUBDEVICE, NV_VIDEO_MEMORY, 0x3E, 0xC2, 0x82, 0xB1, 0 };
static const uint32_t COMMANDS[] = { NV_GPU_ID_INFO_V2, NV_FB_INFO, NV_FB_INFO_V2, 0x202, 0 };

#define ANY(list) list[draw(sizeof(list) / sizeof(*list))]

/* A page that can be read and not written, and one with a page behind it that cannot be touched; never shared with another process. */
static char *readable, *edge;

static uint64_t any_pointer(char *buffer)
{
	switch (draw(8)) {
	case 0: return 0;
	case 1: return draw(UINT64_MAX);
	case 2: return (uintptr_t)readable;
	case 3: return (uintptr_t)edge + PAGE - draw(64);
	case 4: return (uintptr_t)edge + PAGE;
	default: return (uintptr_t)buffer;
	}
}

static uint32_t any_handle(const struct rm *rm)
{
	switch (draw(6)) {
	case 0: return 0;
	case 1: return (uint32_t)draw(UINT32_MAX);
	case 2: return rm->client;
	case 3: return rm->device;
	case 4: return rm->subdevice;
	default: return (uint32_t)draw(64);
	}
}

static void fill(const struct rm *rm, char *buffer, char *nested)
{
	uint32_t *words = (uint32_t *)buffer;

	for (unsigned i = 0; i < BYTES / 4; i++)
		words[i] = draw(3) ? 0 : (uint32_t)draw(UINT32_MAX);
	for (unsigned i = 0; i < FIELDS; i++)
		if (draw(4))
			words[i] = any_handle(rm);
	if (draw(2))
		words[0] = rm->client;
	if (draw(2))
		words[3] = ANY(CLASSES);
	if (draw(3) == 0)
		words[2] = ANY(COMMANDS);
	if (draw(3) == 0)
		words[2] = (uint32_t)draw(16);
	if (draw(2)) {
		uint64_t pointer = any_pointer(nested);

		memcpy(buffer + 16, &pointer, sizeof(pointer));
	}
	if (draw(4) == 0) {
		uint64_t size = draw(64) * MIB;

		memcpy(buffer + 64, &size, sizeof(size));
		memcpy(buffer + 88, &size, sizeof(size));
	}
}

static void wrap(char *wrapper, char *inner)
{
	struct nv_xfer made = { ANY(NUMBERS), ANY(SIZES), any_pointer(inner) };

	memcpy(wrapper, &made, sizeof(made));
}

/* A real allocation with one thing wrong, or nothing: the share of calls that get far. */
static void nearly_right(const struct rm *rm)
{
	struct nv_memory_params params = { .owner = rm->client, .attr = rm->attr, .bytes = draw(32) * MIB };
	struct nv_alloc_long_535 at = { rm->client, rm->device, 0, NV_VIDEO_MEMORY, (uintptr_t)&params, 0, sizeof(params), 0, 0, 0 };

	switch (draw(5)) {
	case 0: at.size = (uint32_t)draw(200); break;
	case 1: at.params = any_pointer((char *)&params); break;
	case 2: at.parent = any_handle(rm); break;
	case 3: at.root = any_handle(rm); break;
	default: break;
	}
	if (ioctl(rm->control, _IOC(_IOC_READ | _IOC_WRITE, 'F', NV_ALLOC, sizeof(at)), &at) == 0 && at.status == 0 && draw(4))
		rm_free(rm, at.object);
}

static char *map(size_t size, int protection)
{
	char *at = mmap(NULL, size, protection, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (at == MAP_FAILED)
		exit(2);
	return at;
}

/* The client may have been freed by chance: then all the rest would be refused at the door. */
static void open_again(struct rm *rm)
{
	rm_free(rm, rm->client);
	rm->client = 0;
	close(rm->card);
	close(rm->control);
	rm_start(rm);
}

static void stop(struct rm *rm)
{
	char line[8];

	open_again(rm);
	for (int i = 0; i < PIECES; i++)
		nearly_right(rm);
	puts("waiting");
	fflush(stdout);
	if (!fgets(line, sizeof(line), stdin))
		exit(EXIT_FAILURE);
}

int main(int count, char **words)
{
	struct rm rm = rm_plain();
	long calls = count == 3 ? atol(words[1]) : 0, answered = 0;
	char *buffer = map(BYTES, PROT_READ | PROT_WRITE), *nested = map(BYTES + PAGE, PROT_READ | PROT_WRITE);

	if (calls < STOPS)
		return 2;
	state = strtoull(words[2], NULL, 10) * 2654435761u + 1;
	readable = map(PAGE, PROT_READ);
	edge = map(2 * PAGE, PROT_READ | PROT_WRITE);
	mprotect(edge + PAGE, PAGE, PROT_NONE);
	rm_start(&rm);
	for (long i = 0; i < calls; i++) {
		int file = draw(16) ? rm.control : (draw(2) ? rm.card : (int)draw(1100) - 10);
		unsigned place = (unsigned)draw(sizeof(NUMBERS) / sizeof(*NUMBERS)), number = NUMBERS[place];
		unsigned size = draw(4) ? RIGHT_SIZES[place] : ANY(SIZES);

		if (i % OPEN_AGAIN == 0)
			open_again(&rm);
		if (i % (calls / STOPS) == 0)
			stop(&rm);
		if (draw(8) == 0) {
			nearly_right(&rm);
			continue;
		}
		fill(&rm, buffer, nested);
		fill(&rm, nested, buffer);
		if (number == NV_XFER && draw(2))
			wrap(buffer, nested);
		/* The driver goes on to the file behind a number that is not its own: only its files are asked. */
		answered += ioctl(file, _IOC(draw(4), draw(3) ? 'F' : (unsigned)draw(256), number, size), any_pointer(buffer)) == 0;
	}
	return answered < calls / 10 ? 3 : EXIT_SUCCESS;
}
