#include "objects.h"

/* As the driver's own handles look; a client's number is unique in the whole system. */
enum { FIRST_CLIENT = 0xC1D00000 - 0x100000000, FIRST_HANDLE = 0xCAF00000 - 0x100000000, FIRST_BUCKETS = 256 };

static struct object **bucket_of(struct object **buckets, size_t count, uint32_t client, uint32_t handle)
{
	uint64_t mixed = ((uint64_t)client << 32 | handle) * 0x9E3779B97F4A7C15u;

	return &buckets[(mixed >> 32) & (count - 1)];
}

struct object *object_find(const struct rm *rm, uint32_t client, uint32_t handle)
{
	struct object *object;

	if (!rm->bucket_count)
		return NULL;
	object = *bucket_of(rm->buckets, rm->bucket_count, client, handle);
	while (object && (object->client != client || object->handle != handle))
		object = object->chained;
	return object;
}

static bool grow(struct rm *rm)
{
	size_t count = rm->bucket_count ? rm->bucket_count * 2 : FIRST_BUCKETS;
	struct object **buckets = rm->host->take(count * sizeof(*buckets));

	if (!buckets)
		return false;
	for (size_t i = 0; i < rm->bucket_count; i++) {
		while (rm->buckets[i]) {
			struct object *object = rm->buckets[i];
			struct object **to = bucket_of(buckets, count, object->client, object->handle);

			rm->buckets[i] = object->chained;
			object->chained = *to;
			*to = object;
		}
	}
	rm->host->give(rm->buckets);
	rm->buckets = buckets;
	rm->bucket_count = count;
	return true;
}

static uint32_t pick(struct rm *rm, const struct object *parent)
{
	uint32_t handle;

	do {
		handle = parent ? (uint32_t)FIRST_HANDLE + (rm->next_handle++ & 0xFFFFF)
				: (uint32_t)FIRST_CLIENT + (rm->next_client++ & 0xFFFFF);
	} while (object_find(rm, parent ? parent->client : handle, handle));
	return handle;
}

static void link_below(struct object *parent, struct object *object)
{
	object->parent = parent;
	object->card = parent->card;
	object->next = parent->children;
	if (object->next)
		object->next->previous = object;
	parent->children = object;
}

uint32_t object_add(struct rm *rm, struct object *parent, uint32_t *handle, uint32_t class_number, struct object **added)
{
	struct object *object, **bucket;

	if (rm->counts.objects >= rm->bucket_count && !grow(rm))
		return RM_NO_ROOM_FOR_STATE;
	if (!*handle)
		*handle = pick(rm, parent);
	if (object_find(rm, parent ? parent->client : *handle, *handle))
		return RM_DUPLICATE;
	object = rm->host->take(sizeof(*object));
	if (!object)
		return RM_NO_ROOM_FOR_STATE;
	object->client = parent ? parent->client : *handle;
	object->handle = *handle;
	object->class_number = class_number;
	if (parent)
		link_below(parent, object);
	bucket = bucket_of(rm->buckets, rm->bucket_count, object->client, object->handle);
	object->chained = *bucket;
	*bucket = object;
	rm->counts.objects++;
	rm->counts.clients += !parent;
	*added = object;
	return RM_OK;
}

struct memory *memory_take(struct rm *rm, uint32_t card, uint64_t bytes)
{
	struct rm_card *on = &rm->cards[card];
	struct memory *memory;

	if (bytes > on->total - on->reserved - on->used)
		return NULL;
	memory = rm->host->take(sizeof(*memory));
	if (!memory)
		return NULL;
	memory->card = card;
	memory->bytes = bytes;
	memory->references = 1;
	memory->next = rm->memories;
	if (memory->next)
		memory->next->previous = memory;
	rm->memories = memory;
	on->used += bytes;
	if (on->used > on->peak)
		on->peak = on->used;
	return memory;
}

void memory_hold(struct memory *memory, struct object *object)
{
	struct object **last = &memory->holders;

	object->memory = memory;
	while (*last) {
		object->previous_holder = *last;
		last = &(*last)->next_holder;
	}
	*last = object;
}

void memory_release(struct rm *rm, struct memory *memory)
{
	if (--memory->references)
		return;
	rm->cards[memory->card].used -= memory->bytes;
	if (memory->previous)
		memory->previous->next = memory->next;
	else
		rm->memories = memory->next;
	if (memory->next)
		memory->next->previous = memory->previous;
	rm->host->give(memory);
}

static void let_go(struct rm *rm, struct object *object)
{
	struct memory *memory = object->memory;

	if (!memory)
		return;
	if (object->previous_holder)
		object->previous_holder->next_holder = object->next_holder;
	else
		memory->holders = object->next_holder;
	if (object->next_holder)
		object->next_holder->previous_holder = object->previous_holder;
	memory_release(rm, memory);
}

static void unlink_client(struct object *client)
{
	if (client->previous_of_file)
		client->previous_of_file->next_of_file = client->next_of_file;
	else if (client->file)
		client->file->clients = client->next_of_file;
	if (client->next_of_file)
		client->next_of_file->previous_of_file = client->previous_of_file;
}

static void free_leaf(struct rm *rm, struct object *object)
{
	struct object **at = bucket_of(rm->buckets, rm->bucket_count, object->client, object->handle);

	while (*at != object)
		at = &(*at)->chained;
	*at = object->chained;
	let_go(rm, object);
	if (object->previous)
		object->previous->next = object->next;
	else if (object->parent)
		object->parent->children = object->next;
	if (object->next)
		object->next->previous = object->previous;
	if (!object->parent) {
		unlink_client(object);
		rm->counts.clients--;
	}
	rm->counts.objects--;
	rm->host->give(object);
}

void object_free(struct rm *rm, struct object *object)
{
	struct object *at = object;

	for (;;) {
		struct object *parent = at->parent;
		bool is_last;

		if (at->children) {
			at = at->children;
			continue;
		}
		is_last = at == object;
		free_leaf(rm, at);
		if (is_last)
			return;
		at = parent;
	}
}
