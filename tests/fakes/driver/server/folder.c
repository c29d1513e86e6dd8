#include "folder.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* Managed memory lies at the file offset that is its address: the file reaches over the whole address space. */
static const uint64_t UVM_BYTES = (uint64_t)1 << 47;

const char *folder_name(const struct folder *folder, uint64_t node, char *room, size_t size)
{
	static const char *const names[] = {
		[NODE_CONTROL] = "nvidiactl", [NODE_UVM] = "nvidia-uvm", [NODE_VERSION] = "version", [NODE_STATE] = "state",
		[NODE_REFUSE] = "refuse",
	};

	if (node > NODE_FOLDER && node < NODE_FIRST_CARD)
		return names[node];
	if (node < NODE_FIRST_CARD || node - NODE_FIRST_CARD >= folder->card_count)
		return NULL;
	snprintf(room, size, "nvidia%" PRIu32, folder->cards[node - NODE_FIRST_CARD].minor);
	return room;
}

uint64_t folder_find(const struct folder *folder, const char *name)
{
	char room[32];
	const char *at;

	for (uint64_t node = NODE_CONTROL; (at = folder_name(folder, node, room, sizeof(room))); node++)
		if (strcmp(at, name) == 0)
			return node;
	return 0;
}

bool folder_is_text(uint64_t node)
{
	return node == NODE_VERSION || node == NODE_STATE || node == NODE_REFUSE;
}

struct fuse_attr folder_attributes(uint64_t node)
{
	struct fuse_attr attributes = { .ino = node, .nlink = 1, .blksize = 4096, .mode = S_IFREG | 0666 };

	if (node == NODE_FOLDER)
		attributes.mode = S_IFDIR | 0755;
	else if (node == NODE_REFUSE)
		attributes.mode = S_IFREG | 0600;
	else if (folder_is_text(node))
		attributes.mode = S_IFREG | 0444;
	else if (node == NODE_UVM)
		attributes.size = UVM_BYTES;
	return attributes;
}

bool folder_order(struct folder *folder, const char *text)
{
	unsigned status, times;

	if (sscanf(text, "%x %u", &status, &times) != 2)
		return false;
	rm_refuse(folder->rm, status, times);
	return true;
}

struct process {
	uint32_t card, pid;
	uint64_t bytes;
};

struct processes {
	struct process *rows;
	size_t count, room;
	bool is_short;		/* of memory */
};

static void add_holding(void *to, uint32_t card, uint32_t pid, uint64_t bytes)
{
	struct processes *processes = to;

	for (size_t i = 0; i < processes->count; i++) {
		if (processes->rows[i].card != card || processes->rows[i].pid != pid)
			continue;
		processes->rows[i].bytes += bytes;
		return;
	}
	if (processes->count == processes->room) {
		size_t room = processes->room * 2 + 16;
		struct process *rows = realloc(processes->rows, room * sizeof(*rows));

		processes->is_short |= !rows;
		if (!rows)
			return;
		processes->rows = rows;
		processes->room = room;
	}
	processes->rows[processes->count++] = (struct process){ card, pid, bytes };
}

static void say_state(FILE *out, const struct folder *folder, const struct processes *processes)
{
	struct rm_counts counts = rm_count(folder->rm);

	for (uint32_t i = 0; i < folder->card_count; i++) {
		const struct rm_card *card = &folder->cards[i];

		fprintf(out, "card %s %" PRIu32 " %" PRIu64 " %" PRIu64 " %" PRIu64 "\n", card->uuid, card->minor,
			card->total, card->used, card->peak);
	}
	for (size_t i = 0; i < processes->count; i++) {
		const struct process *row = &processes->rows[i];

		fprintf(out, "process %s %" PRIu32 " %" PRIu64 "\n", folder->cards[row->card].uuid, row->pid, row->bytes);
	}
	fprintf(out, "counts files=%" PRIu64 " clients=%" PRIu64 " objects=%" PRIu64 " refused=%" PRIu64 " calls=%" PRIu64 "\n",
		counts.files, counts.clients, counts.objects, counts.refused, counts.calls);
}

char *folder_text(const struct folder *folder, uint64_t node)
{
	struct processes processes = { 0 };
	char *text = NULL;
	size_t size;
	FILE *out = open_memstream(&text, &size);

	if (!out)
		return NULL;
	if (node == NODE_VERSION) {
		fprintf(out, "%s\n", folder->version);
	} else if (node == NODE_STATE) {
		rm_each_holding(folder->rm, add_holding, &processes);
		say_state(out, folder, &processes);
	}
	free(processes.rows);
	if (fclose(out) == 0 && !processes.is_short)
		return text;
	free(text);
	return NULL;
}
