/*
 * request CLASS BYTES [owner=N] [flags=N] [attr=N] [attr2=N] [alignment=N] [times=N]: allocates that of the class (hex), so many
 * times or until it is refused. Says how often, the last status and the size that the driver wrote back, then `holding`,
 * and waits for a line. Numbers are as C writes them.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rm.h"

enum { MISUSE = 2, BRANCH_LONG = 545 };

struct wish { uint64_t owner, flags, attr, attr2, alignment, times; };

static void set(struct wish *wish, const char *word)
{
	const struct { const char *name; uint64_t *value; } places[] = {
		{ "owner=", &wish->owner }, { "flags=", &wish->flags }, { "attr=", &wish->attr }, { "attr2=", &wish->attr2 },
		{ "alignment=", &wish->alignment }, { "times=", &wish->times },
	};

	for (size_t i = 0; i < sizeof(places) / sizeof(*places); i++) {
		size_t length = strlen(places[i].name);

		if (strncmp(word, places[i].name, length) == 0) {
			*places[i].value = strtoull(word + length, NULL, 0);
			return;
		}
	}
	fprintf(stderr, "request: %s is not understood\n", word);
	exit(MISUSE);
}

int main(int count, char **words)
{
	struct wish wish = { .owner = NV_OWNER, .times = 1 };
	struct nv_memory_params params = { 0 };
	struct rm rm = rm_plain();
	uint32_t class_number, object, status = 0;
	uint64_t bytes, made = 0;
	char line[16];

	setvbuf(stdout, NULL, _IOLBF, 0);
	if (count < 3)
		return MISUSE;
	class_number = (uint32_t)strtoul(words[1], NULL, 16);
	bytes = strtoull(words[2], NULL, 0);
	for (int i = 3; i < count; i++)
		set(&wish, words[i]);
	rm_start(&rm);
	while (made < wish.times && status == 0) {
		params = (struct nv_memory_params){
			.owner = (uint32_t)wish.owner, .flags = (uint32_t)wish.flags, .attr = (uint32_t)wish.attr,
			.attr2 = (uint32_t)wish.attr2, .bytes = bytes, .alignment = wish.alignment,
		};
		object = 0;
		status = rm_alloc(&rm, rm.device, class_number, &params, sizeof(params) - (rm.branch < BRANCH_LONG ? 8 : 0), &object);
		made += status == 0;
	}
	printf("%llu, status 0x%x, %llu bytes\nholding\n", (unsigned long long)made, status, (unsigned long long)params.bytes);
	return fgets(line, sizeof(line), stdin) == NULL;
}
