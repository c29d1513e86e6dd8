/* SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0 */
/* What the files of the core share: decoding, locking, and one function per watched call. */
#ifndef INTERNAL_H
#define INTERNAL_H

#include "core.h"
#include "layouts.h"
#include "objects.h"

#define CALL_EFAULT 14
#define CALL_EINVAL 22

/* What core_after has to do. */
enum call_kind {
	CALL_PASSED,
	CALL_CLIENT,
	CALL_DEVICE, /* or a subdevice, a channel: nothing that takes memory, but other things hang below it */
	CALL_MEMORY,
	CALL_HEAP_MEMORY,
	CALL_HEAP_REPORT,
	CALL_FREE,
	CALL_DUP,
	CALL_REPORT,
	CALL_ID,
	CALL_CARDS,
	CALL_EXPORT,
	CALL_IMPORT,
	CALL_CLIENTS, /* a control that names clients */
};

/*
 * The driver's result. In doubt when the driver may have succeeded and could not report it, or reported it where it cannot
 * be read any more: then a charge stays.
 */
enum call_outcome { CALL_HAPPENED, CALL_FAILED, CALL_IN_DOUBT };

static inline uint32_t load32(const unsigned char *from)
{
	uint32_t value;

	__builtin_memcpy(&value, from, sizeof(value));
	return value;
}

static inline uint16_t load16(const unsigned char *from)
{
	uint16_t value;

	__builtin_memcpy(&value, from, sizeof(value));
	return value;
}

static inline uint64_t load64(const unsigned char *from)
{
	uint64_t value;

	__builtin_memcpy(&value, from, sizeof(value));
	return value;
}

static inline bool copy_in(const struct core *core, void *to, uint64_t from, size_t size)
{
	return core->ops->copy_in(core->context, to, from, size) == 0;
}

static inline bool copy_out(const struct core *core, uint64_t to, const void *from, size_t size)
{
	return core->ops->copy_out(core->context, to, from, size) == 0;
}

/*
 * Copies the caller's struct, once: for the decision, and for comparing with the driver's copy. At most
 * CORE_COPY_BYTES.
 */
static inline bool copy_struct(const struct core *core, struct core_call *call, size_t size)
{
	if (!copy_in(core, call->copy, call->at, size))
		return false;
	call->copied_bytes = (uint32_t)size;
	return true;
}

/* A field of the struct, as the driver has left it. */
static inline bool copy_reply(const struct core *core, const struct core_call *call, void *to, uint32_t offset, size_t size)
{
	if (call->reply != CORE_REPLY_COPIED)
		return copy_in(core, to, call->at + offset, size);
	__builtin_memcpy(to, call->copy + offset, size);
	return true;
}

static inline void lock(struct core *core)
{
	core->ops->lock(core->context);
}

static inline void unlock(struct core *core)
{
	core->ops->unlock(core->context);
}

static inline enum core_verdict call_pass(struct core_call *call)
{
	call->kind = CALL_PASSED;
	return CORE_FORWARD;
}

/* Writes the status into the caller's struct, or returns an error if it cannot. The driver is not asked. */
enum core_verdict call_refuse(const struct core *core, struct core_call *call, uint32_t status);
/* The error of the driver for a struct that it does not know, or cannot read. */
enum core_verdict call_refuse_with(struct core_call *call, int error);
/* Space in the tables, before the driver is asked; false when there is no memory for them. */
bool call_reserve(struct core *core, struct core_call *call);

/* Copies the parameters that the driver will use; false: they cannot be read, or there is no memory. */
bool call_copy_parameters(struct core *core, struct core_call *call, uint32_t size);
void call_free_parameters(struct core *core, struct core_call *call);

enum call_outcome call_outcome_of(const struct core *core, const struct core_call *call, long result);
/* Records what was made, with what waits below it, in place of an older object with that handle, which the driver has just given out. */
void call_remember(struct core *core, struct core_file *file, struct core_call *call, uint32_t handle);
/* Drops it and everything below it and uncharges them, unless the place is used by another object by now. */
void call_drop(struct core *core, uint32_t object, uint32_t serial);
/* All objects of that file. */
void call_drop_all(struct core *core, struct core_file *file);

enum core_verdict call_alloc_before(struct core *core, struct core_file *file, struct core_call *call);
void call_alloc_after(struct core *core, struct core_file *file, struct core_call *call, long result);
enum core_verdict call_heap_before(struct core *core, struct core_file *file, struct core_call *call);
enum core_verdict call_window_before(struct core *core, struct core_call *call);
enum core_verdict call_context_before(struct core *core, struct core_call *call);

enum core_verdict call_free_before(struct core *core, struct core_call *call);
/* The object is client and handle of the call. */
enum core_verdict call_free_object_before(struct core *core, struct core_call *call);
void call_free_after(struct core *core, struct core_call *call, long result);
enum core_verdict call_dup_before(struct core *core, struct core_call *call);
void call_dup_after(struct core *core, struct core_file *file, struct core_call *call, long result);

void call_report_after(struct core *core, struct core_file *file, struct core_call *call, long result);
void call_heap_report_after(struct core *core, struct core_file *file, struct core_call *call, long result);

enum core_verdict call_clients_before(struct core *core, struct core_call *call);

enum core_verdict call_transfer_before(struct core *core, struct core_call *call);
void call_export_after(struct core *core, struct core_call *call, long result);
void call_import_after(struct core *core, struct core_file *file, struct core_call *call, long result);

void cards_after_id(struct core *core, struct core_file *file, struct core_call *call, long result);
void cards_after_list(struct core *core, struct core_file *file, struct core_call *call, long result);
/* The minor of a device instance; with the lock held. */
uint32_t cards_minor(const struct core_cards *cards, uint32_t instance);

#endif
