/*
 * What the driver's allocator pins for random requests, against what the module charges for them.
 *
 *   pins SEED COUNT CGROUP CONTROL   a child in CGROUP (its folder) allocates, this process measures: what the card lost,
 *                                    against the rise of `used` in the line of CONTROL that begins with "card CGROUP'S NAME 0"
 *   pins SEED COUNT                  no limit: a line for each request with its answer, to compare one allocator with another
 *
 * Ends with a line of counts. Each request that pins more than it is charged for, is charged though it was refused, or leaves
 * anything behind when it is freed is a line of its own, and the exit code is 1.
 */
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "rm.h"

enum { KIB = 1024, GIB_SHIFT = 30, MOST_GIB = 8, MISUSE = 2, NOT_GRANTED = 1, LINES = 64 };
enum { FLAG_FIXED = 0x10, FLAG_ALIGNMENT_HINT = 0x80, FLAG_FORCE_ALIGNMENT = 0x100, FLAG_HANDLE = 0x4000, FLAG_KEPT_LATER = 0x8000 };
enum { ATTR_COMPRESSED_SHIFT = 13, ATTR_PAGES_SHIFT = 23, ATTR_LOCATION_SHIFT = 25, ATTR_PHYSICAL_SHIFT = 27, ATTR2_HUGE_SHIFT = 20 };

struct answer {
	uint32_t status, object;
	uint64_t bytes;		/* as the driver wrote it back */
};

struct counts {
	unsigned long granted, no_room, not_offered, other, wrong;
	uint64_t pinned_kib, charged_kib;
};

/* xorshift64*: the same requests for a seed on every machine. */
static uint64_t next(uint64_t *dice)
{
	*dice ^= *dice >> 12;
	*dice ^= *dice << 25;
	*dice ^= *dice >> 27;
	return *dice * 2685821657736338717u;
}

static bool is_one_in(uint64_t *dice, uint64_t n)
{
	return next(dice) % n == 0;
}

/* From a byte to some GiB, each power of two as likely as the next, often a power of two itself. */
static uint64_t random_size(uint64_t *dice)
{
	uint64_t bytes = (uint64_t)1 << next(dice) % (GIB_SHIFT + 3);

	return is_one_in(dice, 3) ? bytes : bytes + next(dice) % bytes;
}

/* Mostly words that programs use, now and then any bit. Always the card's memory, with or without contiguity. */
static struct nv_memory_params random_request(uint64_t *dice)
{
	static const uint32_t flags[] = { 0, FLAG_ALIGNMENT_HINT, FLAG_FORCE_ALIGNMENT, FLAG_KEPT_LATER, FLAG_FIXED };
	struct nv_memory_params params = { .owner = NV_OWNER };

	params.flags = flags[next(dice) % 5] | flags[next(dice) % 4];
	params.attr = (uint32_t)(next(dice) % 4 << ATTR_PAGES_SHIFT | next(dice) % 4 << ATTR_PHYSICAL_SHIFT);
	if (is_one_in(dice, 4))
		params.attr |= (uint32_t)(next(dice) % 4 << ATTR_COMPRESSED_SHIFT);
	params.attr2 = (uint32_t)(next(dice) % 4 << ATTR2_HUGE_SHIFT);
	if (is_one_in(dice, 8))
		params.attr2 |= 1u << next(dice) % 32;
	if (is_one_in(dice, 8))
		params.attr |= 1u << next(dice) % 32;
	params.attr &= ~(3u << ATTR_LOCATION_SHIFT);
	params.bytes = random_size(dice);
	if (!is_one_in(dice, 3))
		params.alignment = is_one_in(dice, 4) ? next(dice) % (1u << 20) : (uint64_t)1 << next(dice) % 33;
	if (params.flags & FLAG_FIXED)
		params.offset = next(dice) % ((uint64_t)MOST_GIB << GIB_SHIFT) & ~(uint64_t)0xffff;
	if (is_one_in(dice, 16))
		params.range_high = next(dice) % ((uint64_t)MOST_GIB << GIB_SHIFT);
	return params;
}

static struct answer allocate(const struct rm *rm, struct nv_memory_params params)
{
	struct answer answer = { 0 };
	uint32_t size = rm->branch < 545 ? sizeof(params) - 8 : sizeof(params);

	answer.status = rm_alloc(rm, rm->device, NV_VIDEO_MEMORY, &params, size, &answer.object);
	answer.bytes = params.bytes;
	return answer;
}

static uint64_t free_kib(const struct rm *rm)
{
	static const uint32_t index = NV_HEAP_FREE;
	uint32_t kib, status = rm_report(rm, &index, &kib, 1);

	if (status != 0)
		rm_die("FB_GET_INFO", status);
	return kib;
}

static void count(struct counts *counts, uint32_t status)
{
	counts->granted += status == 0;
	counts->no_room += status == NV_NO_MEMORY;
	counts->not_offered += status == 0x56;
	counts->other += status != 0 && status != NV_NO_MEMORY && status != 0x56;
}

static void print_request(const struct nv_memory_params *params)
{
	printf("flags 0x%x attr 0x%x attr2 0x%x bytes %" PRIu64 " alignment %" PRIu64 " offset %" PRIu64 " range %" PRIu64,
	       params->flags, params->attr, params->attr2, params->bytes, params->alignment, params->offset, params->range_high);
}

/* Unlimited: what each request costs the card. */
static int list_requests(uint64_t seed, unsigned long rounds)
{
	struct rm rm = rm_plain();

	rm_start(&rm);
	for (unsigned long i = 0; i < rounds; i++) {
		struct nv_memory_params params = random_request(&seed);
		uint64_t before = free_kib(&rm);
		struct answer answer = allocate(&rm, params);

		print_request(&params);
		printf(": status 0x%x bytes %" PRIu64 " pinned %" PRIu64 " KiB\n", answer.status,
		       answer.status ? 0 : answer.bytes, before - free_kib(&rm));
		if (!answer.status && rm_free(&rm, answer.object) != 0)
			rm_die("RM_FREE", 1);
	}
	return EXIT_SUCCESS;
}

static void must_write(const char *path, const char *text)
{
	int file = open(path, O_WRONLY | O_CLOEXEC);

	if (file < 0 || write(file, text, strlen(text)) < 0)
		rm_die(path, 0);
	close(file);
}

/* In the container: allocates what it reads, answers, frees when told. */
static void allocate_for(const char *cgroup, int requests, int answers)
{
	struct rm rm = rm_plain();
	struct nv_memory_params params;
	char path[256];

	snprintf(path, sizeof(path), "%s/cgroup.procs", cgroup);
	must_write(path, "0");
	rm_start(&rm);
	while (read(requests, &params, sizeof(params)) == (ssize_t)sizeof(params)) {
		struct answer answer = allocate(&rm, params);
		char go;

		if (write(answers, &answer, sizeof(answer)) != (ssize_t)sizeof(answer) || read(requests, &go, 1) != 1)
			exit(EXIT_FAILURE);
		if (!answer.status && rm_free(&rm, answer.object) != 0)
			rm_die("RM_FREE", 1);
		if (write(answers, &go, 1) != 1)
			exit(EXIT_FAILURE);
	}
	exit(EXIT_SUCCESS);
}

static uint64_t charged_kib(const char *control, const char *card)
{
	static char text[1 << 16];
	int file = open(control, O_RDONLY | O_CLOEXEC);
	ssize_t size = file < 0 ? -1 : read(file, text, sizeof(text) - 1);
	char *line, *used;

	if (size < 0)
		rm_die(control, 0);
	close(file);
	text[size] = 0;
	line = strstr(text, card);
	used = line ? strstr(line, " used=") : NULL;
	if (!used)
		rm_die(card, 0);
	return strtoull(used + 6, NULL, 10) / KIB;
}

struct measured {
	uint64_t pinned, charged, left_pinned, left_charged;	/* KiB */
	struct answer answer;
};

static void exchange(int to, const void *out, size_t size, int from, void *in, size_t wanted)
{
	if (write(to, out, size) != (ssize_t)size || read(from, in, wanted) != (ssize_t)wanted)
		rm_die("the process in the container", 0);
}

static struct measured measure(const struct rm *rm, const struct nv_memory_params *params, int to, int from, const char *control,
			       const char *card)
{
	uint64_t free_before = free_kib(rm), charged_before = charged_kib(control, card);
	struct measured found;
	char go = 'f';

	exchange(to, params, sizeof(*params), from, &found.answer, sizeof(found.answer));
	found.pinned = free_before - free_kib(rm);
	found.charged = charged_kib(control, card) - charged_before;
	exchange(to, &go, 1, from, &go, 1);
	found.left_pinned = free_before - free_kib(rm);
	found.left_charged = charged_kib(control, card) - charged_before;
	return found;
}

static bool is_right(const struct measured *found)
{
	if (found->left_pinned || found->left_charged)
		return false;
	return found->answer.status ? !found->pinned && !found->charged : found->pinned <= found->charged;
}

static int compare(uint64_t seed, unsigned long rounds, const char *cgroup, const char *control)
{
	const char *slash = strrchr(cgroup, '/');
	struct counts counts = { 0 };
	struct rm rm = rm_plain();
	int requests[2], answers[2];
	char card[128];

	snprintf(card, sizeof(card), "card %s 0 ", slash ? slash + 1 : cgroup);
	if (pipe(requests) != 0 || pipe(answers) != 0)
		rm_die("pipe", 0);
	if (fork() == 0) {
		close(requests[1]);
		allocate_for(cgroup, requests[0], answers[1]);
	}
	close(answers[1]);
	rm_start(&rm);
	for (unsigned long i = 0; i < rounds; i++) {
		struct nv_memory_params params = random_request(&seed);
		struct measured found = measure(&rm, &params, requests[1], answers[0], control, card);

		count(&counts, found.answer.status);
		counts.pinned_kib += found.pinned;
		counts.charged_kib += found.charged;
		if (is_right(&found) || counts.wrong++ >= LINES)
			continue;
		print_request(&params);
		printf(": status 0x%x, pinned %" PRIu64 " charged %" PRIu64 " KiB, afterwards %" PRIu64 " and %" PRIu64 "\n",
		       found.answer.status, found.pinned, found.charged, found.left_pinned, found.left_charged);
	}
	close(requests[1]);
	wait(NULL);
	printf("%lu granted, %lu no room, %lu not offered, %lu otherwise refused, %lu wrong; pinned %" PRIu64 ", charged %" PRIu64 " MiB\n",
	       counts.granted, counts.no_room, counts.not_offered, counts.other, counts.wrong, counts.pinned_kib >> 10, counts.charged_kib >> 10);
	return counts.wrong || !counts.granted ? NOT_GRANTED : EXIT_SUCCESS;
}

int main(int count_of_words, char **words)
{
	if (count_of_words != 3 && count_of_words != 5)
		return MISUSE;
	if (count_of_words == 3)
		return list_requests(strtoull(words[1], NULL, 10) + 1, strtoul(words[2], NULL, 10));
	return compare(strtoull(words[1], NULL, 10) + 1, strtoul(words[2], NULL, 10), words[3], words[4]);
}
