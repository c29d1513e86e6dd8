// SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0
/* The calls that free objects, and the one that duplicates them. */
#include "internal.h"

enum core_verdict call_free_before(struct core *core, struct core_call *call)
{
	const struct core_layout *layout = core->layout;
	const unsigned char *free = call->copy;

	if (call->size != layout->free_bytes || !copy_struct(core, call, call->size))
		return call_pass(call);
	call->status = layout->free_status;
	call->client = load32(free + layout->free_root);
	call->handle = load32(free + layout->free_handle);
	return call_free_object_before(core, call);
}

/*
 * It can be found while the driver frees it, marked with a pending free: what is made below it in the meantime is not
 * lost with it, another call that frees the same does not uncharge it twice, and a reply that names its handle replaces it.
 */
enum core_verdict call_free_object_before(struct core *core, struct core_call *call)
{
	struct core_objects *objects = &core->objects;

	lock(core);
	call->object = objects_find(objects, call->client, call->handle);
	if (call->object) {
		call->serial = objects->objects[call->object].serial;
		objects->objects[call->object].pending_frees++;
	}
	unlock(core);
	call->kind = call->object ? CALL_FREE : CALL_PASSED;
	return CORE_FORWARD;
}

void call_free_after(struct core *core, struct core_call *call, long result)
{
	enum call_outcome outcome = call_outcome_of(core, call, result);
	struct core_object *object;

	if (outcome == CALL_HAPPENED) {
		call_drop(core, call->object, call->serial);
		return;
	}
	/* In doubt it stays charged, and stays marked. */
	if (outcome == CALL_IN_DOUBT)
		return;
	lock(core);
	object = &core->objects.objects[call->object];
	if (object->serial == call->serial)
		object->pending_frees--;
	unlock(core);
}

/* The duplicate holds the charge before the driver is asked: the original may be freed during the call. */
enum core_verdict call_dup_before(struct core *core, struct core_call *call)
{
	const struct core_layout *layout = core->layout;
	struct core_objects *objects = &core->objects;
	const unsigned char *dup = call->copy;
	bool is_reserved = false;
	bool is_foreign = false;
	uint32_t source, source_client;

	if (call->size != layout->dup_bytes)
		return call_pass(call);
	if (!copy_struct(core, call, call->size))
		return call_refuse_with(call, CALL_EFAULT);
	call->status = layout->dup_status;
	call->client = load32(dup + layout->dup_client);
	call->parent = load32(dup + layout->dup_parent);
	source_client = load32(dup + layout->dup_source_client);
	lock(core);
	source = objects_find(objects, source_client, load32(dup + layout->dup_source_handle));
	if (!source && core->ops->knows_all_clients)
		is_foreign = !objects_find(objects, source_client, source_client);
	if (source)
		is_reserved = objects_reserve(core);
	call->last_serial = objects->serial;
	if (is_reserved) {
		call->charge = objects->objects[source].charge;
		call->card = objects->objects[source].card;
		if (call->charge)
			objects->charges[call->charge].references++;
	}
	unlock(core);
	if (is_foreign)
		return call_refuse(core, call, STATUS_NOT_PERMITTED);
	if (!source)
		return call_pass(call);
	if (!is_reserved)
		return call_refuse(core, call, STATUS_NO_MEMORY);
	call->kind = CALL_DUP;
	return CORE_FORWARD;
}

bool core_hold(struct core *core, uint32_t client, uint32_t handle, uint32_t *charge)
{
	struct core_objects *objects = &core->objects;
	uint32_t object;
	bool is_known;

	*charge = 0;
	lock(core);
	is_known = objects_find(objects, client, client);
	object = objects_find(objects, client, handle);
	if (object)
		*charge = objects->objects[object].charge;
	if (*charge)
		objects->charges[*charge].references++;
	unlock(core);
	return is_known;
}

void core_put_hold(struct core *core, uint32_t charge)
{
	struct objects_uncharge uncharge;
	bool is_last;

	lock(core);
	is_last = objects_put_charge(&core->objects, charge, &uncharge);
	unlock(core);
	if (is_last)
		core->ops->uncharge(core->context, uncharge.owner, uncharge.card, uncharge.bytes);
}

static void cancel_dup(struct core *core, struct core_call *call)
{
	lock(core);
	objects_unreserve(&core->objects);
	unlock(core);
	if (call->charge)
		core_put_hold(core, call->charge);
}

void call_dup_after(struct core *core, struct core_file *file, struct core_call *call, long result)
{
	enum call_outcome outcome = call_outcome_of(core, call, result);
	uint32_t handle = 0;

	if (outcome == CALL_HAPPENED &&
	    (!copy_reply(core, call, &handle, core->layout->dup_handle, sizeof(handle)) || !handle))
		outcome = CALL_IN_DOUBT;
	if (outcome == CALL_FAILED || (outcome == CALL_IN_DOUBT && !call->charge))
		cancel_dup(core, call);
	else
		call_remember(core, file, call, outcome == CALL_HAPPENED ? handle : 0);
}
