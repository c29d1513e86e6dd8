/*
 * The flat folder that is served: which files there are, what they look like, and the plain texts that people and tests
 * read. `state` is rebuilt at each open. `refuse` is written: `STATUS TIMES`, see rm_refuse.
 */
#ifndef FAKE_FOLDER_H
#define FAKE_FOLDER_H

#include <linux/fuse.h>

#include "behaviour.h"

enum node {
	NODE_FOLDER = FUSE_ROOT_ID,
	NODE_CONTROL,
	NODE_UVM,
	NODE_VERSION,
	NODE_STATE,
	NODE_REFUSE,
	NODE_FIRST_CARD,
};

struct folder {
	const char *version;
	struct rm *rm;
	struct rm_card cards[RM_CARDS];
	uint32_t card_count;
};

/* 0: no such file. */
uint64_t folder_find(const struct folder *folder, const char *name);

/* The name of the file, or NULL: the numbers go on from NODE_CONTROL without a gap. */
const char *folder_name(const struct folder *folder, uint64_t node, char *room, size_t size);

bool folder_is_text(uint64_t node);
struct fuse_attr folder_attributes(uint64_t node);

/* What was written to `refuse`, ended by a zero. False: it means nothing. */
bool folder_order(struct folder *folder, const char *text);

/* To be freed; NULL without memory. */
char *folder_text(const struct folder *folder, uint64_t node);

#endif
