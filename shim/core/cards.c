// SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0
/*
 * Which device instance is which /dev/nvidiaN, learned from replies that pass: the card list says gpu_id and minor, the
 * id control gpu_id and instance. What was learned first stays, since the caller could rewrite a later reply.
 */
#include "internal.h"

_Static_assert((int)LIMIT_CARDS == CORE_CARDS, "one bit and one place for each");

static void learn(uint32_t *gpu_ids, uint32_t *known, uint32_t index, uint32_t gpu_id)
{
	if (index >= CORE_CARDS || *known >> index & 1)
		return;
	gpu_ids[index] = gpu_id;
	*known |= 1u << index;
}

void cards_after_id(struct core *core, struct core_file *file, struct core_call *call, long result)
{
	const struct core_layout *layout = core->layout;
	bool is_long = call->command == COMMAND_ID_LONG;
	uint64_t gpu_id_at = call->parameters + (is_long ? layout->id_long_gpu_id : layout->id_gpu_id);
	uint64_t instance_at = call->parameters + (is_long ? layout->id_long_instance : layout->id_instance);
	uint32_t gpu_id, instance;

	if (call_outcome_of(core, call, result) != CALL_HAPPENED)
		return;
	if (!copy_in(core, &gpu_id, gpu_id_at, sizeof(gpu_id)) || !copy_in(core, &instance, instance_at, sizeof(instance)))
		return;
	lock(core);
	learn(file->cards->gpu_id_of_instance, &file->cards->known_instances, instance, gpu_id);
	unlock(core);
}

void cards_after_list(struct core *core, struct core_file *file, struct core_call *call, long result)
{
	const struct core_layout *layout = core->layout;
	uint32_t room = call->size / core->layout->card_bytes;

	for (uint32_t i = 0; result >= 0 && i < room && i < CORE_CARDS; i++) {
		unsigned char card[CARD_BYTES_MOST];

		if (!copy_in(core, card, call->at + (uint64_t)i * layout->card_bytes, sizeof(card)))
			return;
		if (!card[layout->card_valid])
			continue;
		lock(core);
		learn(file->cards->gpu_id_of_minor, &file->cards->known_minors, load32(card + layout->card_minor),
		      load32(card + layout->card_gpu_id));
		unlock(core);
	}
}

uint32_t cards_minor(const struct core_cards *cards, uint32_t instance)
{
	if (instance >= CORE_CARDS || !(cards->known_instances >> instance & 1))
		return CORE_ONLY_CARD;
	for (uint32_t minor = 0; minor < CORE_CARDS; minor++)
		if (cards->known_minors >> minor & 1 &&
		    cards->gpu_id_of_minor[minor] == cards->gpu_id_of_instance[instance])
			return minor;
	return CORE_ONLY_CARD;
}
