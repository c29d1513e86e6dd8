/*
 * nvidia-smi's twin: the memory line of its table, or --query-gpu=memory.total,memory.used,memory.free
 * --format=csv,noheader,nounits in MiB. Computed as NVML's second memory report does: what is neither free nor
 * reserved is used. Where NVML reads what is reserved is not documented: it is the reserved figure here, and with
 * --by-heap what the heap lacks of the total.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rm.h"

enum { TOTAL, FREE, RESERVED, HEAP, FIGURES };

static const char MISUSE_TEXT[] = "usage: nvidia-smi [--control PATH] [--driver BRANCH] [--minor N] [--by-heap]"
	" [--query-gpu=memory.total,memory.used,memory.free --format=csv,noheader,nounits]\n";

static bool parse(int count, char **words, struct rm *rm, bool *is_query, bool *is_by_heap)
{
	for (int i = 1; i < count; i++) {
		if (strcmp(words[i], "--query-gpu=memory.total,memory.used,memory.free") == 0)
			*is_query = true;
		else if (strcmp(words[i], "--by-heap") == 0)
			*is_by_heap = true;
		else if (strcmp(words[i], "--format=csv,noheader,nounits") == 0)
			continue;
		else if (i + 1 == count)
			return false;
		else if (strcmp(words[i], "--control") == 0)
			rm->path = words[++i];
		else if (strcmp(words[i], "--driver") == 0)
			rm->branch = (unsigned)atoi(words[++i]);
		else if (strcmp(words[i], "--minor") == 0)
			rm->minor = atoi(words[++i]);
		else
			return false;
	}
	return true;
}

int main(int count, char **words)
{
	static const uint32_t indices[FIGURES] = { NV_TOTAL_RAM, NV_HEAP_FREE, NV_RESERVED, NV_HEAP_SIZE };
	struct rm rm = rm_plain();
	unsigned long long used;
	uint32_t kib[FIGURES], status;
	bool is_query = false, is_by_heap = false;

	if (!parse(count, words, &rm, &is_query, &is_by_heap)) {
		fputs(MISUSE_TEXT, stderr);
		return 2;
	}
	rm_start(&rm);
	status = rm_report(&rm, indices, kib, FIGURES);
	if (status != 0)
		rm_die("FB_GET_INFO", status);
	if (is_by_heap)
		kib[RESERVED] = kib[TOTAL] - kib[HEAP];
	/* Unsigned on purpose, in bytes: a sum that wraps shows as the absurd figure it then really is. */
	used = ((unsigned long long)kib[TOTAL] - kib[FREE] - kib[RESERVED]) << 10;
	if (is_query) {
		printf("%u, %llu, %u\n", kib[TOTAL] >> 10, used >> 20, kib[FREE] >> 10);
		return 0;
	}
	puts("+---------------------------+\n|              Memory-Usage |\n|===========================|");
	printf("| %10lluMiB / %6uMiB  |\n", used >> 20, kib[TOTAL] >> 10);
	puts("+---------------------------+");
	return 0;
}
