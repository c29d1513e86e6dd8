/* SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0 */
/*
 * What was made through the driver: clients, devices, subdevices, memory. Each is known by (client, handle), hangs below
 * the one it was made in, and memory carries a charge, which its duplicates share.
 *
 *      file -> client -> device -> memory ----> charge {owner, card, bytes}
 *                     -> memory (duplicate) --^
 *
 * Tables of indices, so that they can move when they grow; 0 is "none". Objects are found by hash, in chains. All of this
 * is called with the core's lock held.
 */
#ifndef OBJECTS_H
#define OBJECTS_H

#include "core.h"

struct core_object {
	uint32_t client, handle;
	uint32_t next_in_bucket; /* of a free one: the next free one */
	uint32_t parent, first, next, previous;
	uint32_t serial; /* changes whenever the place is used again; 0: it is free */
	uint32_t card;
	uint32_t charge;
	uint32_t pending_frees; /* calls that free it and that the driver is working on */
	uint32_t place, transfer; /* of what was exported: the place in its file, from 1, and the number of the call */
	struct core_file *file; /* of one without parent */
};

struct core_charge {
	void *owner; /* NULL: not memory, but a channel group, which counts in group_count */
	uint64_t bytes;
	uint32_t card;
	uint32_t references; /* of a free one: the next free one */
};

/* What objects_drop leaves to be uncharged once the lock is released. */
struct objects_uncharge {
	void *owner;
	uint64_t bytes;
	uint32_t card;
};

#define OBJECTS_UNCHARGES 8

/* Space for one more object and one more charge, so that recording them cannot fail once the driver has been asked. */
bool objects_reserve(struct core *core);
void objects_unreserve(struct core_objects *objects);

uint32_t objects_find(const struct core_objects *objects, uint32_t client, uint32_t handle);
/* CORE_ONLY_CARD when there is no such object. */
uint32_t objects_card(const struct core_objects *objects, uint32_t client, uint32_t handle);

/*
 * Uses up a reservation. Below `parent` of the same client; where that is unknown or being freed below the client, or else
 * the file: a charge may be kept longer than needed, but is never lost. A client is its own handle and has no parent;
 * handle 0 is never found again, and goes with what it hangs below.
 */
uint32_t objects_add(struct core_objects *objects, struct core_file *file, uint32_t client, uint32_t parent,
		     uint32_t handle);
/* One more holder of a charge, which no handle finds: it goes with the file, or with what it is moved below (0: nothing). */
uint32_t objects_add_holder(struct core_objects *objects, struct core_file *file, uint32_t charge);
void objects_move_all(struct core_objects *objects, struct core_file *from, struct core_file *to, uint32_t above);
/* The first object in one of these places, or 0; and the next object of that export, or 0. */
uint32_t objects_find_export(const struct core_objects *objects, const struct core_file *file, uint32_t place,
			     uint32_t count);
uint32_t objects_find_transfer(const struct core_objects *objects, const struct core_file *file, uint32_t number);

/* It is no longer found by its handle, and stays where it is in the tree. */
void objects_unhash(struct core_objects *objects, uint32_t index);
uint32_t objects_add_charge(struct core_objects *objects, void *owner, uint32_t card, uint64_t bytes);
/* For a channel group that is counted already: as a charge, it counts until the last duplicate of it has gone. */
uint32_t objects_add_group(struct core_objects *objects, uint32_t card);
/* Is it one that no call is freeing? */
bool objects_is_group(const struct core_objects *objects, uint32_t index);

/*
 * Takes objects out of the tree below `index`, leaves first and itself last. Returns how many places of `uncharges` are
 * used; *more says that there are still objects, to be asked for again.
 */
uint32_t objects_drop(struct core_objects *objects, uint32_t index, struct objects_uncharge *uncharges, bool *more);
/* Drops a reference. True when it was the last of memory: *uncharge is then to be uncharged. */
bool objects_put_charge(struct core_objects *objects, uint32_t charge, struct objects_uncharge *uncharge);

void objects_end(struct core *core);

#endif
