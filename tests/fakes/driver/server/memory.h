/* Memory by its parameters, whichever call they came with: rounded, and taken from the card if it is the card's. */
#ifndef FAKE_MEMORY_H
#define FAKE_MEMORY_H

#include "objects.h"

enum {
	FLAG_VIRTUAL = 0x00080000,
	ATTR_LOCATION_SHIFT = 25,	/* two bits: 0 is video memory */
};

struct request {
	uint32_t owner, flags, attr, attr2;
	uint64_t bytes, alignment, offset, limit;
};

/* A device or a subdevice. */
bool memory_has_card(const struct object *object);

/* Class 0x40, 0x3E or 0x50A0 below `parent`; the request is settled to what was given. */
uint32_t memory_alloc(struct rm *rm, struct object *parent, uint32_t *handle, uint32_t class_number,
		      struct request *request);

#endif
