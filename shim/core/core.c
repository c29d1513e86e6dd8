// SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0
/* The door: what kind of call it is, and which file knows about it. */
#include "internal.h"

bool core_knows_version(const char *driver_version)
{
	return layouts_find(driver_version) != NULL;
}

bool core_begin(struct core *core, const struct core_ops *ops, void *context, const char *driver_version)
{
	core->ops = ops;
	core->context = context;
	core->layout = layouts_find(driver_version);
	return core->layout != NULL;
}

void core_end(struct core *core)
{
	objects_end(core);
}

/* The wrapper carries any other call; inside another wrapper nothing, since the driver looks once. */
static bool unwrap(const struct core *core, struct core_call *call, uint32_t *number)
{
	unsigned char wrapper[WRAPPER_BYTES_MOST];

	if (call->size != core->layout->wrapper_bytes || !copy_in(core, wrapper, call->at, sizeof(wrapper)))
		return false;
	*number = load32(wrapper + core->layout->wrapper_number);
	call->size = load32(wrapper + core->layout->wrapper_size);
	call->at = load64(wrapper + core->layout->wrapper_pointer);
	return true;
}

enum core_verdict core_before(struct core *core, struct core_file *file, struct core_call *call, uint32_t request,
			      uint64_t argument)
{
	uint32_t number = request & 0xFF;

	call->at = argument;
	call->size = request >> 16 & 0x3FFF;
	if (number == ESC_XFER_CMD && !unwrap(core, call, &number))
		return call_pass(call);
	/* The most frequent call by far, and mostly passed: it sets all it needs itself. */
	if (number == ESC_CONTROL)
		return call_control_before(core, call);
	*call = (struct core_call){ .at = call->at, .size = call->size };
	switch (number) {
	case ESC_ALLOC:
		return call_alloc_before(core, file, call);
	case ESC_FREE:
		return call_free_before(core, call);
	case ESC_DUP_OBJECT:
		return call_dup_before(core, call);
	case ESC_VID_HEAP_CONTROL:
		return call_heap_before(core, file, call);
	case ESC_ALLOC_MEMORY:
		return call_window_before(core, call);
	case ESC_ALLOC_CONTEXT_DMA:
		return call_context_before(core, call);
	case ESC_CARD_INFO:
		call->kind = CALL_CARDS;
		return CORE_FORWARD;
	default:
		return call_pass(call);
	}
}

void core_after(struct core *core, struct core_file *file, struct core_call *call, long result)
{
	switch (call->kind) {
	case CALL_CLIENT:
	case CALL_DEVICE:
	case CALL_MEMORY:
	case CALL_HEAP_MEMORY:
		call_alloc_after(core, file, call, result);
		break;
	case CALL_FREE:
		call_free_after(core, call, result);
		break;
	case CALL_DUP:
		call_dup_after(core, file, call, result);
		break;
	case CALL_REPORT:
		call_report_after(core, file, call, result);
		break;
	case CALL_HEAP_REPORT:
		call_heap_report_after(core, file, call, result);
		break;
	case CALL_ID:
		cards_after_id(core, file, call, result);
		break;
	case CALL_CARDS:
		cards_after_list(core, file, call, result);
		break;
	default:
		break;
	}
}

void core_release(struct core *core, struct core_file *file)
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

enum core_verdict call_refuse(const struct core *core, struct core_call *call, uint32_t status)
{
	bool is_said = copy_out(core, call->at + call->status, &status, sizeof(status));

	return call_refuse_with(call, is_said ? 0 : CALL_EFAULT);
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
	call->born = core->objects.serial;
	unlock(core);
	return is_reserved;
}

enum call_outcome call_outcome_of(const struct core *core, const struct core_call *call, long result)
{
	uint32_t status;

	/* It copies the struct out last: the one error that can come after the deed. */
	if (result < 0)
		return result == -CALL_EFAULT ? CALL_IN_DOUBT : CALL_FAILED;
	if (!copy_in(core, &status, call->at + call->status, sizeof(status)))
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

/*
 * The driver has just given out this handle, so what stands under it has gone, and its charge with it: if it was there when
 * the call began. If it came later, the two are in no order: the older name is forgotten, and both are charged until the
 * call that frees the one ends, or what it hangs below goes. So too where something hangs below it. With the lock held;
 * how many of `uncharges` (no more than one) are to be uncharged.
 */
static uint32_t replace(struct core_objects *objects, uint32_t index, uint32_t born, struct objects_uncharge *uncharges)
{
	bool more;

	if (!objects->objects[index].first && (int32_t)(objects->objects[index].serial - born) <= 0)
		return objects_drop(objects, index, uncharges, &more);
	objects_unname(objects, index);
	return 0;
}

void call_remember(struct core *core, struct core_file *file, const struct core_call *call, uint32_t handle)
{
	struct core_objects *objects = &core->objects;
	uint32_t client = call->kind == CALL_CLIENT ? handle : call->client;
	struct objects_uncharge uncharges[OBJECTS_UNCHARGES];
	uint32_t index, count = 0;

	lock(core);
	index = handle ? objects_find(objects, client, handle) : 0;
	if (index)
		count = replace(objects, index, call->born, uncharges);
	index = objects_add(objects, file, client, call->parent, handle);
	if (call->charge)
		objects->objects[index].charge = call->charge;
	else if (call->charged_bytes)
		objects->objects[index].charge =
			objects_add_charge(objects, file->owner, call->card, call->charged_bytes);
	if (call->card != CORE_ONLY_CARD)
		objects->objects[index].card = call->card;
	unlock(core);
	if (count)
		core->ops->uncharge(core->context, uncharges->owner, uncharges->card, uncharges->bytes);
}
