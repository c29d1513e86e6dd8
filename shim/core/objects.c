// SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0
#include "objects.h"

#define FIRST_ROOM 64 /* guessed: a small CUDA program fits without growing */
#define AT_ONCE 4096 /* guessed: how many objects are dropped before others get the lock */

static uint32_t bucket_of(const struct core_objects *objects, uint32_t client, uint32_t handle)
{
	uint32_t hash = (client ^ objects->seed) * 0x9E3779B1u ^ handle * 0x85EBCA6Bu;

	hash ^= hash >> 15;
	hash *= 0xC2B2AE35u;
	return (hash ^ hash >> 13) & (objects->bucket_room - 1);
}

static bool grow_objects(struct core *core)
{
	struct core_objects *objects = &core->objects;
	uint32_t room = objects->object_room ? objects->object_room * 2 : FIRST_ROOM;
	size_t size = sizeof(struct core_object);
	struct core_object *bigger;

	if (room < objects->object_room)
		return false;
	bigger = core->ops->grow(core->context, objects->objects, objects->object_room * size, room * size);
	if (!bigger)
		return false;
	for (uint32_t i = room - 1; i >= objects->object_room && i > 0; i--) {
		bigger[i].next_in_bucket = objects->object_free;
		objects->object_free = i;
	}
	objects->objects = bigger;
	objects->object_room = room;
	return true;
}

static bool grow_charges(struct core *core)
{
	struct core_objects *objects = &core->objects;
	uint32_t room = objects->charge_room ? objects->charge_room * 2 : FIRST_ROOM;
	size_t size = sizeof(struct core_charge);
	struct core_charge *bigger;

	if (room < objects->charge_room)
		return false;
	bigger = core->ops->grow(core->context, objects->charges, objects->charge_room * size, room * size);
	if (!bigger)
		return false;
	for (uint32_t i = room - 1; i >= objects->charge_room && i > 0; i--) {
		bigger[i].references = objects->charge_free;
		objects->charge_free = i;
	}
	objects->charges = bigger;
	objects->charge_room = room;
	return true;
}

static void put_in_bucket(struct core_objects *objects, uint32_t index)
{
	struct core_object *object = &objects->objects[index];
	uint32_t *bucket = &objects->buckets[bucket_of(objects, object->client, object->handle)];

	if (!object->handle)
		return;
	object->next_in_bucket = *bucket;
	*bucket = index;
}

static void remove_from_bucket(struct core_objects *objects, uint32_t index)
{
	struct core_object *object = &objects->objects[index];
	uint32_t *at = &objects->buckets[bucket_of(objects, object->client, object->handle)];

	if (!object->handle)
		return;
	while (*at != index)
		at = &objects->objects[*at].next_in_bucket;
	*at = object->next_in_bucket;
}

static bool grow_buckets(struct core *core)
{
	struct core_objects *objects = &core->objects;
	uint32_t room = objects->object_room;
	uint32_t *buckets = core->ops->grow(core->context, NULL, 0, room * sizeof(*buckets));

	if (!buckets)
		return false;
	if (objects->buckets)
		core->ops->grow(core->context, objects->buckets, objects->bucket_room * sizeof(*buckets), 0);
	objects->buckets = buckets;
	objects->bucket_room = room;
	/* A workload does not know the address of the table, so it cannot choose handles that share a bucket. */
	objects->seed = (uint32_t)((uintptr_t)buckets >> 12) * 0x27D4EB2Fu;
	for (uint32_t i = 1; i < objects->object_room; i++)
		if (objects->objects[i].serial)
			put_in_bucket(objects, i);
	return true;
}

bool objects_reserve(struct core *core)
{
	struct core_objects *objects = &core->objects;

	/* Place 0 is never used. */
	if (objects->object_count + objects->reserved + 1 >= objects->object_room && !grow_objects(core))
		return false;
	if (objects->charge_count + objects->reserved + 1 >= objects->charge_room && !grow_charges(core))
		return false;
	/* With fewer buckets than objects it is slower, not wrong. */
	if (objects->bucket_room < objects->object_room && !grow_buckets(core) && !objects->buckets)
		return false;
	objects->reserved++;
	return true;
}

void objects_unreserve(struct core_objects *objects)
{
	objects->reserved--;
}

uint32_t objects_find(const struct core_objects *objects, uint32_t client, uint32_t handle)
{
	uint32_t index = objects->buckets ? objects->buckets[bucket_of(objects, client, handle)] : 0;

	while (index && (objects->objects[index].client != client || objects->objects[index].handle != handle))
		index = objects->objects[index].next_in_bucket;
	return index;
}

uint32_t objects_card(const struct core_objects *objects, uint32_t client, uint32_t handle)
{
	uint32_t index = objects_find(objects, client, handle);

	return index ? objects->objects[index].card : CORE_ONLY_CARD;
}

static bool is_being_freed(const struct core_objects *objects, uint32_t index)
{
	for (; index; index = objects->objects[index].parent)
		if (objects->objects[index].pending_frees)
			return true;
	return false;
}

/* Trees are as deep as the driver's: client, device, subdevice, memory. No proper program makes deeper ones. */
static uint32_t first_of(const struct core_objects *objects, const struct core_object *object)
{
	return object->parent ? objects->objects[object->parent].first : object->file->first;
}

static void set_first(struct core_objects *objects, const struct core_object *object, uint32_t first)
{
	if (object->parent)
		objects->objects[object->parent].first = first;
	else
		object->file->first = first;
}

static void link_below(struct core_objects *objects, uint32_t index, uint32_t parent)
{
	struct core_object *object = &objects->objects[index];

	object->parent = parent;
	object->previous = 0;
	object->next = first_of(objects, object);
	if (object->next)
		objects->objects[object->next].previous = index;
	set_first(objects, object, index);
}

static void unlink_one(struct core_objects *objects, uint32_t index)
{
	struct core_object *object = &objects->objects[index];

	if (object->next)
		objects->objects[object->next].previous = object->previous;
	if (object->previous)
		objects->objects[object->previous].next = object->next;
	else
		set_first(objects, object, object->next);
}

static uint32_t find_above(const struct core_objects *objects, uint32_t client, uint32_t parent)
{
	uint32_t above = objects_find(objects, client, parent);

	if (!above || is_being_freed(objects, above))
		above = objects_find(objects, client, client);
	return is_being_freed(objects, above) ? 0 : above;
}

uint32_t objects_add(struct core_objects *objects, struct core_file *file, uint32_t client, uint32_t parent,
		     uint32_t handle)
{
	uint32_t above = client == handle ? 0 : find_above(objects, client, parent);
	uint32_t index = objects->object_free;
	struct core_object *object = &objects->objects[index];

	objects->reserved--;
	objects->object_count++;
	objects->object_free = object->next_in_bucket;
	if (++objects->serial == 0)
		objects->serial = 1;
	*object = (struct core_object){
		.client = client,
		.handle = handle,
		.serial = objects->serial,
		.card = above ? objects->objects[above].card : CORE_ONLY_CARD,
		.file = file,
	};
	put_in_bucket(objects, index);
	link_below(objects, index, above);
	return index;
}

uint32_t objects_add_holder(struct core_objects *objects, struct core_file *file, uint32_t charge)
{
	uint32_t index = objects_add(objects, file, 0, 0, 0);

	objects->objects[index].charge = charge;
	objects->charges[charge].references++;
	return index;
}

void objects_move_all(struct core_objects *objects, struct core_file *from, struct core_file *to, uint32_t above)
{
	while (from->first) {
		uint32_t index = from->first;

		unlink_one(objects, index);
		objects->objects[index].file = to;
		link_below(objects, index, above);
	}
}

uint32_t objects_find_export(const struct core_objects *objects, const struct core_file *file, uint32_t place,
			     uint32_t count)
{
	uint32_t index = file->first;

	/* In 32 bits: a client's place is 0. */
	while (index && objects->objects[index].place - place >= count)
		index = objects->objects[index].next;
	return index;
}

uint32_t objects_find_transfer(const struct core_objects *objects, const struct core_file *file, uint32_t number)
{
	uint32_t index = file->first;

	while (index && (!objects->objects[index].place || objects->objects[index].transfer != number))
		index = objects->objects[index].next;
	return index;
}

void objects_unhash(struct core_objects *objects, uint32_t index)
{
	remove_from_bucket(objects, index);
	objects->objects[index].handle = 0;
}

uint32_t objects_add_charge(struct core_objects *objects, void *owner, uint32_t card, uint64_t bytes)
{
	uint32_t index = objects->charge_free;
	struct core_charge *charge = &objects->charges[index];

	objects->charge_count++;
	objects->charge_free = charge->references;
	*charge = (struct core_charge){ .owner = owner, .bytes = bytes, .card = card, .references = 1 };
	return index;
}

uint32_t objects_add_group(struct core_objects *objects, uint32_t card)
{
	return objects_add_charge(objects, NULL, card, 0);
}

bool objects_is_group(const struct core_objects *objects, uint32_t index)
{
	uint32_t charge = objects->objects[index].charge;

	return charge && !objects->charges[charge].owner && !is_being_freed(objects, index);
}

bool objects_put_charge(struct core_objects *objects, uint32_t index, struct objects_uncharge *uncharge)
{
	struct core_charge *charge = &objects->charges[index];

	if (--charge->references)
		return false;
	*uncharge = (struct objects_uncharge){ .owner = charge->owner, .bytes = charge->bytes, .card = charge->card };
	charge->references = objects->charge_free;
	objects->charge_free = index;
	objects->charge_count--;
	objects->group_count -= !uncharge->owner;
	return uncharge->owner;
}

static void remove_one(struct core_objects *objects, uint32_t index)
{
	struct core_object *object = &objects->objects[index];

	unlink_one(objects, index);
	remove_from_bucket(objects, index);
	object->serial = 0;
	object->next_in_bucket = objects->object_free;
	objects->object_free = index;
	objects->object_count--;
}

/* Adds to one of the same owner and card, so that a whole tree is usually one sum. */
static uint32_t add_uncharge(struct objects_uncharge *uncharges, uint32_t count, const struct objects_uncharge *one)
{
	for (uint32_t i = 0; i < count; i++) {
		if (uncharges[i].owner != one->owner || uncharges[i].card != one->card)
			continue;
		uncharges[i].bytes += one->bytes;
		return count;
	}
	uncharges[count] = *one;
	return count + 1;
}

uint32_t objects_drop(struct core_objects *objects, uint32_t index, struct objects_uncharge *uncharges, bool *more)
{
	uint32_t at = index, count = 0;

	*more = true;
	for (uint32_t i = 0; i < AT_ONCE && count < OBJECTS_UNCHARGES; i++) {
		struct objects_uncharge one;
		uint32_t above, charge;

		while (objects->objects[at].first)
			at = objects->objects[at].first;
		above = objects->objects[at].parent;
		charge = objects->objects[at].charge;
		remove_one(objects, at);
		if (charge && objects_put_charge(objects, charge, &one))
			count = add_uncharge(uncharges, count, &one);
		if (at == index) {
			*more = false;
			break;
		}
		at = above;
	}
	return count;
}

void objects_end(struct core *core)
{
	struct core_objects *objects = &core->objects;

	if (objects->objects)
		core->ops->grow(core->context, objects->objects, objects->object_room * sizeof(struct core_object), 0);
	if (objects->charges)
		core->ops->grow(core->context, objects->charges, objects->charge_room * sizeof(struct core_charge), 0);
	if (objects->buckets)
		core->ops->grow(core->context, objects->buckets, objects->bucket_room * sizeof(uint32_t), 0);
	*objects = (struct core_objects){ 0 };
}
