// SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0
/* The entry: sorts the calls by kind and passes each to the file that handles it. */
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

/* The wrapper carries any call but another wrapper, since the driver unwraps once. */
static bool unwrap(const struct core *core, struct core_call *call, uint32_t *number)
{
	unsigned char wrapper[WRAPPER_BYTES_MOST];

	if (call->size != core->layout->wrapper_bytes || !copy_in(core, wrapper, call->at, sizeof(wrapper)))
		return false;
	call->number = *number = load32(wrapper + core->layout->wrapper_number);
	call->size = load32(wrapper + core->layout->wrapper_size);
	call->at = load64(wrapper + core->layout->wrapper_pointer);
	return true;
}

bool core_watches_control(uint32_t command)
{
	switch (command) {
	case COMMAND_REPORT_INLINE:
	case COMMAND_REPORT_LIST:
	case COMMAND_ID:
	case COMMAND_ID_LONG:
	case COMMAND_EXPORT:
	case COMMAND_IMPORT:
	case COMMAND_EXPORTS:
	case COMMAND_IMPORTS:
		return true;
	default:
		return false;
	}
}

static enum core_verdict control_before(struct core *core, struct core_call *call)
{
	const struct core_layout *layout = core->layout;
	const unsigned char *control = call->copy;

	if (call->size != layout->control_bytes || !copy_struct(core, call, call->size))
		return call_pass(call);
	call->command = load32(control + layout->control_command);
	if (!core_watches_control(call->command))
		return call_clients_before(core, call);
	call->status = layout->control_status;
	call->client = load32(control + layout->control_client);
	call->handle = load32(control + layout->control_handle);
	call->parameters = load64(control + layout->control_parameters);
	switch (call->command) {
	case COMMAND_EXPORT:
	case COMMAND_IMPORT:
	case COMMAND_EXPORTS:
	case COMMAND_IMPORTS:
		return call_transfer_before(core, call);
	case COMMAND_REPORT_INLINE:
		if (load32(control + layout->control_parameters_size) != layout->report_inline_bytes)
			return call_pass(call);
		call->kind = CALL_REPORT;
		break;
	case COMMAND_REPORT_LIST:
		if (load32(control + layout->control_parameters_size) != layout->report_list_bytes)
			return call_pass(call);
		call->kind = CALL_REPORT;
		break;
	default:
		call->kind = CALL_ID;
		break;
	}
	return CORE_FORWARD;
}

enum core_verdict core_before(struct core *core, struct core_file *file, struct core_call *call, uint32_t request,
			      uint64_t argument)
{
	uint32_t number = request & 0xFF;

	call->at = argument;
	call->size = request >> 16 & 0x3FFF;
	call->number = number;
	call->copied_bytes = 0;
	call->nested_bytes = 0;
	call->reply = CORE_REPLY_AT_CALLER;
	if (number == ESC_XFER_CMD && !unwrap(core, call, &number))
		return call_pass(call);
	/* The most frequent call by far, and mostly passed: it sets all else it needs itself. */
	if (number == ESC_CONTROL)
		return control_before(core, call);
	*call = (struct core_call){ .at = call->at, .size = call->size, .number = number };
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
	case CALL_EXPORT:
		call_export_after(core, call, result);
		break;
	case CALL_IMPORT:
		call_import_after(core, file, call, result);
		break;
	case CALL_CLIENTS:
		call_free_parameters(core, call);
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
	call_drop_all(core, file);
}
