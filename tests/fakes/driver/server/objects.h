/*
 * Clients, the objects below them, and the memory that objects stand for. Every object has a parent up to its client;
 * freeing one frees what is below. Physical memory lives as long as one object, or uvm, refers to it.
 */
#ifndef FAKE_OBJECTS_H
#define FAKE_OBJECTS_H

#include "behaviour.h"

enum rm_status {
	RM_OK = 0,
	RM_ILLEGAL_ACTION = 0x16,
	RM_NO_ROOM_FOR_STATE = 0x1A,
	RM_NOT_PERMITTED = 0x1B,
	RM_BAD_ADDRESS = 0x1E,
	RM_BAD_ARGUMENT = 0x1F,
	RM_DUPLICATE = 0x19,
	RM_BAD_CLASS = 0x22,
	RM_BAD_CLIENT = 0x23,
	RM_BAD_DEVICE = 0x26,
	RM_BAD_HANDLE = 0x33,
	RM_BAD_PARENT = 0x36,
	RM_BAD_OWNER = 0x39,
	RM_BAD_PARAMETER = 0x3B,
	RM_NO_MEMORY = 0x51,
	RM_NOT_SUPPORTED = 0x56,
	RM_NO_SUCH_OBJECT = 0x57,
	RM_OUT_OF_RANGE = 0x5B,
	RM_IN_USE = 0x63,
};

enum rm_class {
	CLASS_CLIENT = 0x41,		/* 0x0 and 0x1 become this */
	CLASS_DEVICE = 0x80,
	CLASS_SUBDEVICE = 0x2080,
	CLASS_VIDEO_MEMORY = 0x40,
	CLASS_SYSTEM_MEMORY = 0x3E,
	CLASS_VIRTUAL_MEMORY = 0x50A0,
	CLASS_OS_DESCRIPTOR = 0x71,
	CLASS_EXTENDED_MEMORY = 0x42,
	CLASS_USER_SHARED = 0xDE,	/* a page with figures of the whole card */
	CLASS_WHOLE_CARD = 0xC2,
	CLASS_SEMAPHORE_SURFACE = 0xDA,
	CLASS_CHANNEL_END = 0x6F,	/* 0xC36F, 0xC56F .. */
};

struct memory {
	uint32_t card;
	uint32_t references;
	uint64_t bytes;
	struct object *holders;		/* the first one's process is the one it counts for */
	struct memory *next, *previous;	/* all of the driver's */
};

struct object {
	uint32_t client, handle, class_number;
	uint32_t card;			/* from the device down */
	struct object *parent, *children, *next, *previous;
	struct object *chained;		/* in the table */
	bool is_shared;			/* with other processes, by RM_SHARE */
	uint64_t slice;			/* of channel groups, in microseconds; 0: the driver's own */
	struct memory *memory;
	struct object *next_holder, *previous_holder;
	/* of clients only */
	struct rm_file *file;
	struct object *next_of_file, *previous_of_file;
	uint32_t pid;
};

struct duplicate {			/* uvm's own reference to a memory, under a handle of its own client's */
	uint32_t handle;
	struct memory *memory;
	struct duplicate *next;
};

struct mapping {
	uint64_t base;
	uint32_t duplicate;
	struct mapping *next;
};

/* Never taken out before the file is released, so that a mapping can look without the driver's lock. */
struct semaphore_pool {
	uint64_t base, length;
	bool is_freed;
	struct semaphore_pool *next;
};

struct rm_file {
	enum rm_kind kind;
	uint32_t card;
	bool is_ready;			/* uvm: initialised; card: registered with a control file */
	struct object *clients;
	struct mapping *mappings;
	struct semaphore_pool *pools;
	struct memory **exported;	/* to this file; NULL where nothing is */
	uint32_t exported_count;
};

struct rm {
	const struct rm_host *host;
	const struct layout *layout;
	struct rm_card *cards;
	uint32_t card_count;
	struct object **buckets;
	size_t bucket_count;
	uint32_t next_client, next_handle;
	struct memory *memories;
	struct duplicate *duplicates;
	uint32_t next_duplicate;
	uint32_t refusal, refusals_left;	/* ordered by a test */
	struct rm_counts counts;
};

struct object *object_find(const struct rm *rm, uint32_t client, uint32_t handle);

/* Handle 0: the driver picks one, and writes it there. `parent` NULL: a client. */
uint32_t object_add(struct rm *rm, struct object *parent, uint32_t *handle, uint32_t class_number, struct object **added);

/* With everything below it. */
void object_free(struct rm *rm, struct object *object);

/* Room first: NULL when the card has too little of it, or the driver itself has no memory. */
struct memory *memory_take(struct rm *rm, uint32_t card, uint64_t bytes);
void memory_hold(struct memory *memory, struct object *object);
void memory_release(struct rm *rm, struct memory *memory);

#endif
