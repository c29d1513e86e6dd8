/*
 * Runs a script on the core: calls with the caller's memory and the driver's reaction spelled out, and prints what came
 * of them. Everything in core_ops is here: memory with an end, a lock that notices where it is held, and limits.
 *
 *	V version                 begin: 1 or 0                       E                  end
 *	O file owner cards        open a control file                 X file             its last close
 *	L container card bytes    a limit (card 4: the only card)     G count            so many more grows, then none
 *	M address hex             the caller writes                   R address count    what stands there
 *	T address hex             the same, by another thread, between the driver's writing and core_after
 *	D result {address hex}    how the driver will react           K field delta      the layout's field, falsified
 *	B slot file request at    before: F or A answer               A slot             driver and after
 *	Q slot file               the file that a transfer meets (8: a stranger's): may it go on, and its descriptor
 *	U container card          used peak refused                   P owner card       used by that process
 *	N                         objects charges reserved groups     C                  every client is known here
 *	S count                   so many channel groups at most
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "internal.h"
#include "limit.h"

#define BASE 0x100000u
#define SIZE 0x10000u
#define FILES 8
#define OWNERS 8
#define CARDS 5
#define SLOTS 4
#define LINE 20000

static struct core core;
static struct core_layout layout;
static struct core_file files[FILES];
static struct core_cards cards[OWNERS];
static struct limit limits[OWNERS / 2][CARDS];
static struct limit_share shares[OWNERS][CARDS];
static struct core_call calls[SLOTS];
static struct core_file *file_of_slot[SLOTS];
static unsigned char memory[SIZE];
static char reaction[LINE], meddling[LINE];
static bool is_locked;
static long grows_left = -1;
static uint32_t groups_most = UINT32_MAX;

static void expect(bool truth, const char *claim)
{
	if (truth)
		return;
	fprintf(stderr, "run_script: not so: %s\n", claim);
	abort();
}

static bool is_readable(uint64_t from, size_t size)
{
	return from >= BASE && from - BASE <= SIZE && size <= SIZE - (from - BASE);
}

static int read_memory(void *context, void *to, uint64_t from, size_t size)
{
	(void)context;
	expect(!is_locked, "nothing is copied under the lock");
	if (!is_readable(from, size))
		return -1;
	memcpy(to, memory + (from - BASE), size);
	return 0;
}

static int write_memory(void *context, uint64_t to, const void *from, size_t size)
{
	(void)context;
	expect(!is_locked, "nothing is copied under the lock");
	if (!is_readable(to, size))
		return -1;
	memcpy(memory + (to - BASE), from, size);
	return 0;
}

static void checked_lock(void *context)
{
	(void)context;
	expect(!is_locked, "the lock is not taken twice");
	is_locked = true;
}

static void checked_unlock(void *context)
{
	(void)context;
	expect(is_locked, "what is unlocked was locked");
	is_locked = false;
}

static void *checked_grow(void *context, void *old, size_t old_size, size_t new_size)
{
	unsigned char *bigger;

	(void)context;
	if (!new_size) {
		free(old);
		return NULL;
	}
	if (grows_left == 0)
		return NULL;
	grows_left -= grows_left > 0;
	/* A new place every time, so that what still points into the old one is found. */
	bigger = calloc(1, new_size);
	if (bigger && old)
		memcpy(bigger, old, old_size);
	if (bigger)
		free(old);
	return bigger;
}

static unsigned slot_of(uint32_t card)
{
	expect(card == CORE_ONLY_CARD || card < CARDS - 1, "a card there is");
	return card == CORE_ONLY_CARD ? CARDS - 1 : card;
}

static bool checked_try_charge(void *context, void *owner, uint32_t card, uint64_t bytes)
{
	(void)context;
	expect(!is_locked, "nothing is charged under the lock");
	return limit_try_charge(&((struct limit_share *)owner)[slot_of(card)], bytes);
}

static void checked_settle_charge(void *context, void *owner, uint32_t card, uint64_t more)
{
	(void)context;
	expect(!is_locked, "no charge is forced under the lock");
	limit_settle_charge(&((struct limit_share *)owner)[slot_of(card)], more);
}

static void checked_uncharge(void *context, void *owner, uint32_t card, uint64_t bytes)
{
	struct limit_share *share = &((struct limit_share *)owner)[slot_of(card)];

	(void)context;
	expect(!is_locked, "nothing is uncharged under the lock");
	expect(bytes <= share->used_bytes, "what is uncharged was charged");
	limit_uncharge(share, bytes);
}

static bool checked_usage(void *context, void *owner, uint32_t card, uint64_t *limit_bytes, uint64_t *used_bytes)
{
	struct limit *limit = ((struct limit_share *)owner)[slot_of(card)].limit;

	(void)context;
	expect(!is_locked, "usage is not asked under the lock");
	*limit_bytes = limit->limit_bytes;
	*used_bytes = limit->used_bytes;
	return limit->limit_bytes != UINT64_MAX;
}

static uint32_t checked_groups_most(void *context)
{
	(void)context;
	expect(!is_locked, "how many groups there may be is not asked under the lock");
	return groups_most;
}

static struct core_ops ops = {
	.copy_in = read_memory,
	.copy_out = write_memory,
	.lock = checked_lock,
	.unlock = checked_unlock,
	.grow = checked_grow,
	.try_charge = checked_try_charge,
	.settle_charge = checked_settle_charge,
	.uncharge = checked_uncharge,
	.usage = checked_usage,
	.groups_most = checked_groups_most,
};

static void write_hex(uint64_t at, const char *hex)
{
	for (unsigned byte; sscanf(hex, "%2x", &byte) == 1; hex += 2, at++) {
		expect(is_readable(at, 1), "the script writes where memory is");
		memory[at - BASE] = (unsigned char)byte;
	}
}

/* "result address hex address hex": what the driver leaves behind. */
static long react(char *text)
{
	char *rest = NULL, *word = strtok_r(text, " ", &rest);
	long result = word ? strtol(word, NULL, 0) : 0;

	while ((word = strtok_r(NULL, " ", &rest))) {
		uint64_t at = strtoull(word, NULL, 0);
		const char *hex = strtok_r(NULL, " ", &rest);

		write_hex(at, hex ? hex : "");
	}
	return result;
}

static void before(const char *text)
{
	unsigned slot, file;
	uint32_t request;
	uint64_t at;

	expect(sscanf(text, "%u %u %" SCNi32 " %" SCNi64, &slot, &file, (int32_t *)&request, (int64_t *)&at) == 4, "B");
	if (!core_watches(request)) {
		calls[slot].kind = CALL_PASSED;
		puts("F");
		return;
	}
	file_of_slot[slot] = &files[file];
	if (core_before(&core, &files[file], &calls[slot], request, at) == CORE_FORWARD)
		puts("F");
	else
		printf("A %d\n", calls[slot].answer);
}

static void meet(const char *text)
{
	unsigned slot, file;

	expect(sscanf(text, "%u %u", &slot, &file) == 2 && slot < SLOTS && file <= FILES, "Q");
	expect(core_is_transfer(&calls[slot]), "what meets a file is a transfer");
	printf("%d %d\n", core_meets_file(&core, &calls[slot], file < FILES ? &files[file] : NULL),
	       calls[slot].transfer.descriptor);
}

static void after(const char *text)
{
	unsigned slot = (unsigned)atoi(text);
	char *rest = NULL, *word;
	long result = react(reaction);

	for (word = strtok_r(meddling, " ", &rest); word; word = strtok_r(NULL, " ", &rest))
		write_hex(strtoull(word, NULL, 0), strtok_r(NULL, " ", &rest));
	*reaction = *meddling = '\0';
	core_after(&core, file_of_slot[slot], &calls[slot], result);
}

static void show(const char *text)
{
	uint64_t at;
	unsigned count;

	expect(sscanf(text, "%" SCNi64 " %u", (int64_t *)&at, &count) == 2 && is_readable(at, count), "R");
	for (unsigned i = 0; i < count; i++)
		printf("%02x", memory[at - BASE + i]);
	puts("");
}

static void set_up(void)
{
	for (unsigned owner = 0; owner < OWNERS; owner++)
		for (unsigned card = 0; card < CARDS; card++) {
			if (owner % 2 == 0)
				limits[owner / 2][card] = (struct limit){ .limit_bytes = UINT64_MAX };
			limit_join(&limits[owner / 2][card], &shares[owner][card], (int32_t)owner);
		}
}

static void begin(const char *version)
{
	bool is_known = core_begin(&core, &ops, NULL, version);

	printf("%d\n", is_known);
	if (!is_known)
		return;
	expect(core_knows_version(version), "what begins is known");
	layout = *core.layout;
	core.layout = &layout;
}

static void falsify(const char *text)
{
	uint16_t fields[sizeof(layout) / sizeof(uint16_t)];
	unsigned field;
	int delta;

	expect(sscanf(text, "%u %d", &field, &delta) == 2 && field < sizeof(fields) / sizeof(*fields), "K");
	memcpy(fields, &layout, sizeof(fields));
	fields[field] = (uint16_t)(fields[field] + delta);
	memcpy(&layout, fields, sizeof(fields));
}

static void count(const char *text, char what)
{
	unsigned index, card;

	expect(sscanf(text, "%u %u", &index, &card) == 2 && index < OWNERS && card < CARDS, "U or P");
	if (what == 'U')
		printf("%" PRIu64 " %" PRIu64 " %" PRIu64 "\n", limits[index][card].used_bytes, limits[index][card].peak_bytes,
		       limits[index][card].refused);
	else
		printf("%" PRIu64 "\n", shares[index][card].used_bytes);
}

static void run_line(char *line)
{
	const char *text = line + 2;
	unsigned one = 0, two = 0, three = 0;
	uint64_t bytes;
	int used = 0;

	switch (line[0]) {
	case 'V': begin(text); break;
	case 'E': core_end(&core); break;
	case 'O':
		expect(sscanf(text, "%u %u %u", &one, &two, &three) == 3, "O");
		expect(one < FILES && two < OWNERS && three < OWNERS, "O");
		files[one] = (struct core_file){ .owner = shares[two], .cards = &cards[three], .pid = (int32_t)two };
		break;
	case 'X': core_release(&core, &files[atoi(text)]); break;
	case 'L':
		expect(sscanf(text, "%u %u %" SCNu64, &one, &two, &bytes) == 3, "L");
		limit_resize(&limits[one][two], bytes);
		break;
	case 'G': grows_left = atol(text); break;
	case 'M':
		expect(sscanf(text, "%" SCNi64 " %n", (int64_t *)&bytes, &used) == 1, "M");
		write_hex(bytes, text + used);
		break;
	case 'T': strcpy(meddling, text); break;
	case 'D': strcpy(reaction, text); break;
	case 'K': falsify(text); break;
	case 'S': groups_most = (uint32_t)atol(text); break;
	case 'C': ops.knows_all_clients = true; break;
	case 'B': before(text); break;
	case 'Q': meet(text); break;
	case 'A': after(text); break;
	case 'R': show(text); break;
	case 'U':
	case 'P': count(text, line[0]); break;
	case 'N':
		printf("%u %u %u %u\n", core.objects.object_count, core.objects.charge_count, core.objects.reserved,
		       core.objects.group_count);
		break;
	default: expect(false, "a command there is");
	}
}

int main(void)
{
	static char line[LINE];

	set_up();
	while (fgets(line, sizeof(line), stdin)) {
		line[strcspn(line, "\n")] = '\0';
		run_line(line);
	}
	return 0;
}
