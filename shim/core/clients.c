// SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0
/*
 * Controls on channels that reach beyond their container: those that name clients, and the time slice of a group.
 *
 * The first name clients in their parameters, to act on their channels: they switch them off, change how they are
 * preempted, or write their registers. Any program may send them (NON_PRIVILEGED in the driver's tables), handles can be
 * guessed, and the driver does not check that these clients are the caller's: it hands the list on to the card's firmware.
 * So every client named has to be one that was made here. Clients of other containers are refused; 0 names none.
 */
#include "internal.h"

#define SLICE_MOST 2048 /* microseconds: what libcuda sets for each context */

/* Where the clients are: one, or a list with its length. */
struct naming {
	uint32_t clients, count;
	bool is_list;
};

static bool find_naming(const struct core_layout *layout, uint32_t command, struct naming *naming)
{
	switch (command) {
	case COMMAND_DISABLE_CHANNELS:
		*naming = (struct naming){ layout->disable_channels_clients, layout->disable_channels_count, true };
		return true;
	case COMMAND_DISABLE_FOR_KEYS:
		*naming = (struct naming){ layout->disable_for_keys_clients, layout->disable_for_keys_count, true };
		return true;
	case COMMAND_ROTATE_KEYS:
		*naming = (struct naming){ layout->rotate_keys_clients, layout->rotate_keys_count, true };
		return true;
	case COMMAND_ZCULL_MODE:
		naming->clients = layout->zcull_mode_client;
		return true;
	case COMMAND_ZCULL_BIND:
		naming->clients = layout->zcull_bind_client;
		return true;
	case COMMAND_PM_BIND:
		naming->clients = layout->pm_bind_client;
		return true;
	case COMMAND_PREEMPTION_BIND:
		naming->clients = layout->preemption_bind_client;
		return true;
	case COMMAND_SETUP_BIND:
		naming->clients = layout->setup_bind_client;
		return true;
	case COMMAND_REGISTERS:
		naming->clients = layout->registers_client;
		return true;
	default:
		return false;
	}
}

/* A list longer than the driver takes is looked at as far as its parameters go. */
static bool names_foreign(struct core *core, const struct core_call *call, const struct naming *naming)
{
	const unsigned char *from = core_nested(call);
	uint32_t count = naming->is_list ? load32(from + naming->count) : 1;
	bool is_foreign = false;

	if (count > CLIENTS_MOST)
		count = CLIENTS_MOST;
	lock(core);
	for (uint32_t i = 0; i < count && !is_foreign; i++) {
		uint32_t client = load32(from + naming->clients + i * sizeof(client));

		is_foreign = client && !objects_find(&core->objects, client, client);
	}
	unlock(core);
	return is_foreign;
}

/*
 * A card gives each busy group its slice in turn, so that a group of a second leaves those of two milliseconds next to
 * nothing (docs/gpu-results). The driver is handed the lower one: it takes what was checked, not what the caller has.
 */
static bool bound_slice(struct core *core, struct core_call *call)
{
	uint64_t microseconds;

	if (!call_copy_parameters(core, call, sizeof(microseconds)))
		return false;
	microseconds = load64(call->nested);
	if (microseconds - 1 >= SLICE_MOST) /* 0 too: what the card makes of it is not known */
		microseconds = SLICE_MOST;
	__builtin_memcpy(call->nested, &microseconds, sizeof(microseconds));
	return true;
}

enum core_verdict call_clients_before(struct core *core, struct core_call *call)
{
	const struct core_layout *layout = core->layout;
	struct naming naming = { 0 };
	bool is_slice = call->command == COMMAND_SET_TIMESLICE;
	bool is_property = call->command == COMMAND_CHANNEL_PROPERTIES;
	uint32_t bytes, status = 0;

	if (!core->ops->knows_all_clients)
		return call_pass(call);
	if (!is_slice && !is_property && !find_naming(layout, call->command, &naming))
		return call_pass(call);
	call->status = layout->control_status;
	/* A channel's own slice, or that it has none at all. No CUDA program asks for it. */
	if (is_property)
		return call_refuse(core, call, STATUS_NOT_SUPPORTED);
	call->parameters = load64(call->copy + layout->control_parameters);
	/* Another encoding of the parameters, for which there is no layout. */
	if (load32(call->copy + layout->control_flags) & FLAG_CONTROL_SERIALIZED)
		return call_refuse(core, call, STATUS_NOT_SUPPORTED);
	call->kind = CALL_CLIENTS;
	if (is_slice)
		return bound_slice(core, call) ? CORE_FORWARD : call_refuse(core, call, STATUS_NOT_SUPPORTED);
	bytes = naming.clients + (naming.is_list ? CLIENTS_MOST : 1) * (uint32_t)sizeof(uint32_t);
	if (!call_copy_parameters(core, call, bytes))
		status = STATUS_NOT_SUPPORTED;
	else if (names_foreign(core, call, &naming))
		status = STATUS_NOT_PERMITTED;
	if (!status)
		return CORE_FORWARD;
	call_free_parameters(core, call);
	return call_refuse(core, call, status);
}
