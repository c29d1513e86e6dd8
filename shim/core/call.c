// SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0
/* What every kind of call needs: how it is refused, how it went with the driver, and what is kept of it afterwards. */
#include "internal.h"

enum core_verdict call_refuse(const struct core *core, struct core_call *call, uint32_t status)
{
	bool is_written = copy_out(core, call->at + call->status, &status, sizeof(status));

	return call_refuse_with(call, is_written ? 0 : CALL_EFAULT);
}

enum core_verdict call_refuse_with(struct core_call *call, int error)
{
	call->kind = CALL_PASSED;
	call->answer = -error;
	return CORE_ANSWERED;
}

bool call_reserve(struct core *core, struct core_call *call)
{
	bool is_reserved;

	lock(core);
	is_reserved = objects_reserve(core);
	call->last_serial = core->objects.serial;
	unlock(core);
	return is_reserved;
}

bool call_copy_parameters(struct core *core, struct core_call *call, uint32_t size)
{
	unsigned char *to = call->nested;

	call->transfer.parameters = NULL;
	if (size > CORE_NESTED_BYTES) {
		lock(core);
		to = core->ops->grow(core->context, NULL, 0, size);
		call->transfer.parameters = to;
		unlock(core);
	}
	call->nested_bytes = size;
	return to && copy_in(core, to, call->parameters, size);
}

void call_free_parameters(struct core *core, struct core_call *call)
{
	if (!call->transfer.parameters)
		return;
	lock(core);
	core->ops->grow(core->context, call->transfer.parameters, call->nested_bytes, 0);
	unlock(core);
}

enum call_outcome call_outcome_of(const struct core *core, const struct core_call *call, long result)
{
	uint32_t status;

	/* The driver copies the struct out last, so this one error can follow a call that succeeded. */
	if (result < 0 && (result != -CALL_EFAULT || call->reply != CORE_REPLY_COPIED))
		return result == -CALL_EFAULT ? CALL_IN_DOUBT : CALL_FAILED;
	if (call->reply == CORE_REPLY_AWAITED || !copy_reply(core, call, &status, call->status, sizeof(status)))
		return CALL_IN_DOUBT;
	if (status >= STATUS_FIRST_WARNING)
		return CALL_IN_DOUBT;
	return status ? CALL_FAILED : CALL_HAPPENED;
}

void call_drop(struct core *core, uint32_t object, uint32_t serial)
{
	struct objects_uncharge uncharges[OBJECTS_UNCHARGES];
	bool more = true;

	while (more) {
		uint32_t count = 0;

		lock(core);
		if (core->objects.objects[object].serial == serial)
			count = objects_drop(&core->objects, object, uncharges, &more);
		else
			more = false;
		unlock(core);
		for (uint32_t i = 0; i < count; i++)
			core->ops->uncharge(core->context, uncharges[i].owner, uncharges[i].card, uncharges[i].bytes);
	}
}

void call_drop_all(struct core *core, struct core_file *file)
{
	for (;;) {
		uint32_t object, serial = 0;

		lock(core);
		object = file->first;
		if (object)
			serial = core->objects.objects[object].serial;
		unlock(core);
		if (!object)
			break;
		call_drop(core, object, serial);
	}
}

/*
 * The driver has just given out this handle, so an object that is recorded under it is gone, and its charge with it,
 * provided that it was recorded when the call began. If it was recorded later, the order of the two is unknown: the older
 * handle is forgotten, and both stay charged until the call that frees one of them ends, or the object above it goes. The
 * same holds where there are objects below it. With the lock held; returns how many of `uncharges` (at most one) are used.
 */
static uint32_t replace_object(struct core_objects *objects, uint32_t index, uint32_t last_serial, struct objects_uncharge *uncharges)
{
	bool more;

	if (!objects->objects[index].first && (int32_t)(objects->objects[index].serial - last_serial) <= 0)
		return objects_drop(objects, index, uncharges, &more);
	objects_unhash(objects, index);
	return 0;
}

void call_remember(struct core *core, struct core_file *file, struct core_call *call, uint32_t handle)
{
	struct core_objects *objects = &core->objects;
	uint32_t client = call->kind == CALL_CLIENT ? handle : call->client;
	struct objects_uncharge uncharges[OBJECTS_UNCHARGES];
	uint32_t index, count = 0;

	lock(core);
	index = handle ? objects_find(objects, client, handle) : 0;
	if (index)
		count = replace_object(objects, index, call->last_serial, uncharges);
	index = objects_add(objects, file, client, call->parent, handle);
	if (call->charge)
		objects->objects[index].charge = call->charge;
	else if (call->charged_bytes)
		objects->objects[index].charge =
			objects_add_charge(objects, file->owner, call->card, call->charged_bytes);
	else if (call->is_group)
		objects->objects[index].charge = objects_add_group(objects, call->card);
	if (call->card != CORE_ONLY_CARD)
		objects->objects[index].card = call->card;
	objects_move_all(objects, &call->transfer.waiting, file, index);
	unlock(core);
	if (count)
		core->ops->uncharge(core->context, uncharges->owner, uncharges->card, uncharges->bytes);
}
