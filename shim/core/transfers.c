// SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0
/*
 * Exporting objects to a control file and importing them from one. The driver duplicates them into a client of its own, and
 * frees that with the file: so a file holds the charge of what was exported to it, and what is imported holds it too.
 *
 *      client -> memory ----> charge
 *      file -> export -----/    \---- memory (imported)
 *
 * A place in a file that is taken stays so until the file is closed, also where the driver would take it back or put another
 * object there: what a call that runs meanwhile imports from that place is then known.
 */
#include "internal.h"

bool core_is_transfer(const struct core_call *call)
{
	return call->kind == CALL_EXPORT || call->kind == CALL_IMPORT;
}

static void end_transfer(struct core *core, struct core_call *call)
{
	struct core_transfer *transfer = &call->transfer;

	lock(core);
	for (; transfer->reserved; transfer->reserved--)
		objects_unreserve(&core->objects);
	unlock(core);
	call_free_parameters(core, call);
	/* What still waits has met no file, so the driver has not either. */
	call_drop_all(core, &transfer->waiting);
}

/* False: they are more than the driver takes. */
static bool read_one(const struct core *core, struct core_call *call)
{
	const struct core_layout *layout = core->layout;
	struct core_transfer *transfer = &call->transfer;
	bool is_export = call->command == COMMAND_EXPORT;

	transfer->descriptor = (int32_t)load32(call->nested + (is_export ? layout->export_file : layout->import_file));
	transfer->objects = is_export ? layout->export_object : layout->import_object;
	transfer->count = 1;
	if (!is_export)
		call->parent = load32(call->nested + layout->import_parent);
	return true;
}

static bool read_many(const struct core *core, struct core_call *call)
{
	const struct core_layout *layout = core->layout;
	struct core_transfer *transfer = &call->transfer;
	const unsigned char *from = transfer->parameters;
	bool is_export = call->command == COMMAND_EXPORTS;

	transfer->descriptor = (int32_t)load32(from + (is_export ? layout->exports_file : layout->imports_file));
	transfer->objects = is_export ? layout->exports_objects : layout->imports_objects;
	transfer->count = load16(from + (is_export ? layout->exports_count : layout->imports_count));
	transfer->index = load16(from + (is_export ? layout->exports_index : layout->imports_index));
	if (!is_export)
		call->parent = load32(from + layout->imports_parent);
	return transfer->count <= (is_export ? (uint32_t)MOST_EXPORTS : (uint32_t)MOST_IMPORTS);
}

static uint32_t handle_at(const struct core_call *call, uint32_t i)
{
	return load32(core_nested(call) + call->transfer.objects + i * sizeof(uint32_t));
}

/* The charges are held before the driver is asked: the handles may be freed during the call. With the lock held. */
static bool hold_exports(struct core *core, struct core_call *call)
{
	struct core_objects *objects = &core->objects;

	if (++objects->exports == 0)
		objects->exports = 1;
	call->transfer.number = objects->exports;
	for (uint32_t i = 0; i < call->transfer.count; i++) {
		uint32_t object = objects_find(objects, call->client, handle_at(call, i));
		uint32_t charge = object ? objects->objects[object].charge : 0;

		if (!charge)
			continue;
		if (!objects_reserve(core))
			return false;
		object = objects_add_holder(objects, &call->transfer.waiting, charge);
		objects->objects[object].place = call->transfer.index + i + 1;
		objects->objects[object].transfer = call->transfer.number;
	}
	return true;
}

static bool reserve_imports(struct core *core, struct core_call *call)
{
	while (call->transfer.reserved < call->transfer.count) {
		if (!objects_reserve(core))
			return false;
		call->transfer.reserved++;
	}
	return true;
}

static enum core_verdict refuse(struct core *core, struct core_call *call, uint32_t status)
{
	end_transfer(core, call);
	return call_refuse(core, call, status);
}

enum core_verdict call_transfer_before(struct core *core, struct core_call *call)
{
	const struct core_layout *layout = core->layout;
	bool is_one = call->command == COMMAND_EXPORT || call->command == COMMAND_IMPORT;
	bool is_export = call->command == COMMAND_EXPORT || call->command == COMMAND_EXPORTS;
	uint32_t size = load32(call->copy + layout->control_parameters_size), own;
	bool is_ready;

	call->transfer = (struct core_transfer){ 0 };
	call->parent = 0;
	call->card = CORE_ONLY_CARD;
	call->charge = 0;
	call->charged_bytes = 0;
	/* Another encoding of the parameters, for which there is no layout. */
	if (load32(call->copy + layout->control_flags) & FLAG_CONTROL_SERIALIZED)
		return call_refuse(core, call, STATUS_NOT_SUPPORTED);
	if (is_one)
		own = is_export ? layout->export_bytes : layout->import_bytes;
	else
		own = is_export ? layout->exports_bytes : layout->imports_bytes;
	/* A size that the driver does not take. */
	if (size != own)
		return call_pass(call);
	call->kind = is_export ? CALL_EXPORT : CALL_IMPORT;
	if (!call_copy_parameters(core, call, size))
		return refuse(core, call, STATUS_NOT_SUPPORTED);
	if (!(is_one ? read_one(core, call) : read_many(core, call)))
		return refuse(core, call, STATUS_NOT_SUPPORTED);
	lock(core);
	is_ready = is_export ? hold_exports(core, call) : reserve_imports(core, call);
	call->last_serial = core->objects.serial;
	unlock(core);
	return is_ready ? CORE_FORWARD : refuse(core, call, STATUS_NO_MEMORY);
}

bool core_meets_file(struct core *core, struct core_call *call, struct core_file *file)
{
	struct core_transfer *transfer = &call->transfer;
	bool is_well = true;

	if (!file)
		return !core->ops->knows_all_clients;
	lock(core);
	if (transfer->met)
		is_well = transfer->met == file;
	else if (call->kind == CALL_EXPORT && core->ops->knows_all_clients)
		is_well = !objects_find_export(&core->objects, file, transfer->index + 1, transfer->count);
	if (is_well) {
		transfer->met = file;
		objects_move_all(&core->objects, &transfer->waiting, file, 0);
	}
	unlock(core);
	return is_well;
}

/* What the driver refused is in no file. What is in doubt counts as in the file. */
void call_export_after(struct core *core, struct core_call *call, long result)
{
	bool has_failed = call_outcome_of(core, call, result) == CALL_FAILED;

	while (has_failed && call->transfer.met) {
		uint32_t object, serial = 0;

		lock(core);
		object = objects_find_transfer(&core->objects, call->transfer.met, call->transfer.number);
		if (object)
			serial = core->objects.objects[object].serial;
		unlock(core);
		if (!object)
			break;
		call_drop(core, object, serial);
	}
	end_transfer(core, call);
}

/* Takes a reference to the charge in that place; 0: nothing there carries one. */
static uint32_t hold_place(struct core *core, struct core_call *call, uint32_t place)
{
	struct core_objects *objects = &core->objects;
	uint32_t object, charge = 0;

	lock(core);
	object = objects_find_export(objects, call->transfer.met, place, 1);
	if (object) {
		charge = objects->objects[object].charge;
		call->card = objects->charges[charge].card;
		objects->charges[charge].references++;
	}
	unlock(core);
	return charge;
}

/*
 * Where the driver chose the handle, it wrote it where the caller can write too: without one, the object is charged
 * until its parent goes.
 */
void call_import_after(struct core *core, struct core_file *file, struct core_call *call, long result)
{
	enum call_outcome outcome = call_outcome_of(core, call, result);
	struct core_transfer *transfer = &call->transfer;

	for (uint32_t i = 0; i < transfer->count && transfer->met && outcome != CALL_FAILED; i++) {
		call->charge = hold_place(core, call, transfer->index + i + 1);
		if (!call->charge)
			continue;
		transfer->reserved--;
		call_remember(core, file, call, outcome == CALL_HAPPENED ? handle_at(call, i) : 0);
	}
	end_transfer(core, call);
}
