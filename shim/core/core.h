/* SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0 */
/*
 * Decides about one watched call of the driver, for the library or the kernel module that caught it.
 *
 * Freestanding C11: no libc, no kernel header but for the integer types, position independent, no memory of its own but
 * what `grow` of its core_ops gives. Every callback gets the context that core_begin was called with.
 *
 *      ioctl(file, request, argument)
 *        core_watches(request)?  no -> straight on to the driver
 *        core_before()           CORE_ANSWERED: the driver is not asked, and the call returns call.answer. That is 0 where the
 *                                status was written to the caller's struct, and -errno where the struct cannot be written
 *        ... the driver ...      CORE_FORWARD
 *        core_after(result)      charges or uncharges, remembers, rewrites reports; result is 0 or -errno
 *
 * Every core_before that says CORE_FORWARD is followed by exactly one core_after, whether the call succeeded or not.
 *
 * Locking: core calls lock/unlock around its own tables only, never around a charge, an uncharge, usage, groups_most or a copy; grow
 * is called inside, so a lock that must not sleep needs a grow that does not. Calls on one file may run in several threads
 * at once; core_release and core_end come after the last of them.
 *
 * In doubt a charge stays: where the driver may have succeeded without being able to say so, and where one call frees a
 * handle before the call that makes it has ended. It is uncharged with the client or the file at the latest.
 *
 * A caller of core_before that can see the driver's own copy of the call compares it with what was checked; core_call
 * has all that this needs. Where the caller cannot (`reply` stays CORE_REPLY_AT_CALLER), a program that changes its
 * struct between our copy and the driver's goes unnoticed. Also uncounted are memory that lives on in a mapping of
 * nvidia-uvm where core_hold is not called, or in a control file where core_meets_file is not, managed memory, and
 * what the driver takes for itself.
 */
#ifndef CORE_H
#define CORE_H

#ifdef __KERNEL__
#include <linux/stddef.h>
#include <linux/types.h>
#else
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#endif

#include "ioctls.h"

struct core_ops {
	/* 0, or the caller's memory cannot be read (written). Nothing is assumed about how much was copied then. */
	int (*copy_in)(void *context, void *to, uint64_t from, size_t size);
	int (*copy_out)(void *context, uint64_t to, const void *from, size_t size);
	void (*lock)(void *context);
	void (*unlock)(void *context);
	/* Like realloc, the new part zeroed; NULL when there is none and the old is kept; new_size 0 frees. */
	void *(*grow)(void *context, void *memory, size_t old_size, size_t new_size);
	/*
	 * The budget of `owner`, a pointer that the core does not follow, on a card. try_charge comes before the
	 * driver; false: it does not fit. Then comes settle_charge if the driver has done it, with the bytes by which
	 * the result exceeds the charge (mostly 0), which count even above the limit; or uncharge if the driver has
	 * refused.
	 */
	bool (*try_charge)(void *context, void *owner, uint32_t card, uint64_t bytes);
	void (*settle_charge)(void *context, void *owner, uint32_t card, uint64_t more_bytes);
	void (*uncharge)(void *context, void *owner, uint32_t card, uint64_t bytes);
	/* limit and used of the whole container on that card; false: nothing limits it there, reports stay as they are. */
	bool (*usage)(void *context, void *owner, uint32_t card, uint64_t *limit, uint64_t *used);
	/*
	 * How many channel groups all files of this core may have at once. A card has some 2,000, for everybody, and
	 * takes memory for each that no container is charged for.
	 */
	uint32_t (*groups_most)(void *context);
	/*
	 * True if this core has seen every client that a call can name: then a duplicate from any other is refused,
	 * as no owner here would be charged for it, and so is a control that names another one, to stop its channels.
	 * False where other processes have clients of their own.
	 */
	bool knows_all_clients;
};

/*
 * `card` is N of /dev/nvidiaN where it is known (deviceInstance -> gpu_id by control 0x205, gpu_id -> minor by CARD_INFO,
 * both learned from replies that pass), CORE_ONLY_CARD otherwise: right wherever a container has one card.
 */
#define CORE_ONLY_CARD 0xFFFFFFFFu
#define CORE_CARDS 32 /* NV_MAX_DEVICES: as many as the driver knows */

/* Everything made through the driver that matters here; index-based, see objects.c. 0 is "none" everywhere. */
struct core_objects {
	struct core_object *objects;
	uint32_t *buckets;
	struct core_charge *charges;
	uint32_t object_room, object_free, object_count;
	uint32_t charge_room, charge_free, charge_count;
	uint32_t bucket_room; /* a power of two */
	uint32_t reserved; /* object and charge slots promised to calls that the driver is working on */
	uint32_t serial, seed;
	uint32_t exports; /* calls so far that exported something */
	uint32_t group_count; /* channel groups, with those that the driver is asked for */
};

/*
 * Which device is which card, as one owner's files have learned it; initially zero. A reply that the caller forged
 * misleads only the caller.
 */
struct core_cards {
	uint32_t gpu_id_of_minor[CORE_CARDS], gpu_id_of_instance[CORE_CARDS];
	uint32_t known_minors, known_instances; /* one bit each */
};

struct core {
	const struct core_ops *ops;
	void *context;
	const struct core_layout *layout;
	struct core_objects objects;
};

/* One open control file: set owner, its cards and pid, zero the rest. It must stay where it is until core_release. */
struct core_file {
	void *owner;
	struct core_cards *cards;
	int32_t pid;
	uint32_t first; /* objects without a parent: the clients made through it, and what was exported to it */
};

/*
 * Where core_after reads the reply: in the caller's memory, or in `copy`, where it was put when the driver had it ready.
 * Awaited: in `copy`, but it never came, and whether the call happened is in doubt.
 */
enum core_reply { CORE_REPLY_AT_CALLER, CORE_REPLY_AWAITED, CORE_REPLY_COPIED };

#define CORE_COPY_BYTES 184 /* HEAP_BYTES_MOST, the largest */
#define CORE_NESTED_BYTES 72 /* of memory's parameters: up to the end of the size */

/*
 * Exporting and importing: between a client's objects and a control file that the parameters name by its descriptor. The
 * call "meets" that file when the caller has looked up the descriptor and passes the file to core_meets_file.
 */
struct core_transfer {
	struct core_file *met; /* that file; NULL before core_meets_file */
	struct core_file waiting; /* what is exported, until the file is met; for other calls, what the new object will hold */
	unsigned char *parameters; /* where they do not fit in `nested`; else NULL */
	uint32_t objects, count; /* where in them the handles are, and how many */
	uint32_t index; /* their first place in the file */
	uint32_t number; /* of the export */
	uint32_t reserved;
	int32_t descriptor;
};

/* What core_before hands to core_after; on the caller's stack, nothing to set up. */
struct core_call {
	int32_t answer; /* of CORE_ANSWERED: 0 or -errno */
	uint32_t kind;
	uint64_t at; /* the parameter struct, its wrapper taken off */
	uint32_t status; /* the offset of its status */
	uint32_t size;
	uint64_t parameters; /* what it points to */
	uint32_t client, parent, handle;
	uint32_t command;
	uint32_t card, charge;
	uint32_t object, serial; /* of a channel: its group */
	uint32_t last_serial; /* objects recorded before the call have a serial up to this one */
	uint64_t charged_bytes;
	bool is_group; /* it counts as a channel group */
	uint32_t number; /* of the call, its wrapper taken off */
	uint32_t copied_bytes, nested_bytes; /* how much was checked: of the struct, and of what it points to */
	enum core_reply reply;
	unsigned char copy[CORE_COPY_BYTES], nested[CORE_NESTED_BYTES];
	struct core_transfer transfer; /* of calls for which core_is_transfer is true; of others the parameters */
};

enum core_verdict { CORE_FORWARD, CORE_ANSWERED };

/* The caller owns the memory, zeroed. False: no published layout is known for that version, e.g. "470.82.01". */
bool core_begin(struct core *core, const struct core_ops *ops, void *context, const char *driver_version);
/* Frees the tables. Every file has been released before. */
void core_end(struct core *core);
/* Can core_begin work with that version? */
bool core_knows_version(const char *driver_version);

enum core_verdict core_before(struct core *core, struct core_file *file, struct core_call *call, uint32_t request,
			      uint64_t argument);
void core_after(struct core *core, struct core_file *file, struct core_call *call, long result);
/*
 * Does core_before act on this control, where other processes have clients of their own? A caller may ask the driver first, as a control takes no memory: then core_before,
 * core_meets_file and core_after(0) come back to back after the driver's answer, for these alone.
 */
bool core_watches_control(uint32_t command);
/*
 * A transfer keeps the charges of what it exports as long as its file is open, and those of what it imports as long
 * as the new objects. For that the file has to be met after core_before, ideally where the driver finds it by the
 * descriptor, and must not be released before core_after. NULL: it is not this core's. False: the driver must not go
 * on with it.
 */
bool core_is_transfer(const struct core_call *call);
bool core_meets_file(struct core *core, struct core_call *call, struct core_file *file);

/* The parameters that were checked: nested_bytes of them. */
static inline const unsigned char *core_nested(const struct core_call *call)
{
	return call->nested_bytes > CORE_NESTED_BYTES ? call->transfer.parameters : call->nested;
}

/*
 * Lets nvidia-uvm, which makes none of the watched calls, hold an object's charge. False: no such client is known
 * here. *charge is 0 if the object carries none; otherwise pass it to core_put_hold.
 */
bool core_hold(struct core *core, uint32_t client, uint32_t handle, uint32_t *charge);
void core_put_hold(struct core *core, uint32_t charge);
/* The last close of the file: everything made through it goes. */
void core_release(struct core *core, struct core_file *file);

/* _IOC_NR only: the driver looks at neither the type nor the direction of a request, so neither do we. */
static inline bool core_watches(uint32_t request)
{
	switch (request & 0xFF) {
	case ESC_ALLOC_MEMORY:
	case ESC_FREE:
	case ESC_CONTROL:
	case ESC_ALLOC:
	case ESC_DUP_OBJECT:
	case ESC_VID_HEAP_CONTROL:
	case ESC_ALLOC_CONTEXT_DMA:
	case ESC_CARD_INFO:
	case ESC_XFER_CMD:
		return true;
	default:
		return false;
	}
}

#endif
