"""Breaks of `vrampack/cards/`: what fits, what a pod asks, what it is given and what is written down."""

from __future__ import annotations

from collections.abc import Mapping

from tests.mutations.breaks import Mutation

FITS = "tests/cards/test_fit.py::test_all_fitting_cards_are_listed_in_index_order"
REFUSED = "tests/cards/test_fit.py::test_every_refusal_has_its_reason"
REQUEST = "tests/cards/test_request.py"
UNITS = "tests/cards/test_units.py"
RECORDS = "tests/cards/test_records.py"
SHARES = "tests/cards/test_share_units.py"
NODES = "tests/extender/test_known_nodes.py"

CARDS: Mapping[str, Mutation] = {
    "a node may call all its cards one": Mutation(
        "vrampack/cards/node_annotations.py",
        "if uuid.strip().lower() in RESERVED_NAMES or uuid.isdecimal():",
        "if uuid.isdecimal():",
        "tests/cards/test_node_annotations.py::test_a_damaged_annotation_is_reported_as_a_node_problem_with_its_path[a word of the runtime's]",
    ),
    "a card that a request fills is too small": Mutation(
        "vrampack/cards/reasons.py",
        "return [card for card in cards if card.free_units >= units]",
        "return [card for card in cards if card.free_units > units]",
        f"{FITS}[exactly the room left]",
    ),
    "an unhealthy card is used": Mutation(
        "vrampack/cards/node.py",
        "return self.healthy and not self.cordoned",
        "return not self.cordoned",
        f"{REFUSED}[unhealthy]",
    ),
    "a cordoned card is used": Mutation(
        "vrampack/cards/node.py",
        "return self.healthy and not self.cordoned",
        "return self.healthy",
        f"{REFUSED}[cordoned]",
    ),
    "a whole card is given where somebody is on it": Mutation(
        "vrampack/cards/reasons.py",
        "return [card for card in cards if card.used_units == 0]",
        "return [card for card in cards if card.free_units]",
        f"{REFUSED}[no card empty]",
    ),
    "one card is enough for who asks for two": Mutation(
        "vrampack/cards/fit.py",
        "if len(cards) < (1 if check.needs_one_card else count):",
        "if not cards:",
        f"{REFUSED}[one of two cards full]",
    ),
    "a request that cannot be read is placed": Mutation(
        "vrampack/cards/reasons.py",
        "return cards if request.is_valid else ()",
        "return cards",
        f"{REFUSED}[not valid]",
    ),
    "pods of all tenants share cards": Mutation(
        "vrampack/cards/reasons.py",
        "return [card for card in cards if card.tenants <= own]",
        "return cards",
        "tests/cards/test_card_obstacles.py::test_every_card_has_its_own_reason_and_what_is_missing[another tenant's]",
    ),
    "a reserved card is anybody's": Mutation(
        "vrampack/cards/reasons.py",
        "return [card for card in cards if card.reserve is None or card.reserve in reserves]",
        "return cards",
        "tests/cards/test_card_obstacles.py::test_every_card_has_its_own_reason_and_what_is_missing[reserved for others]",
    ),
    "containers get cards in an unknown way": Mutation(
        "vrampack/cards/reasons.py",
        "if not is_open:",
        "if False:",
        f"{REFUSED}[an injection that this version does not know]",
    ),
    "an agent gets requests that it does not understand": Mutation(
        "vrampack/cards/reasons.py",
        "if unserved_words and not unserved_words.isdisjoint(request.words):",
        "if False:",
        f"{REFUSED}[an agent that knows nothing]",
    ),
    "a pod takes an instance that the back end does not have": Mutation(
        "vrampack/cards/node.py",
        "return self.free >= self.count_taken(instances)",
        "return True",
        "tests/cards/test_card_instances.py::test_the_26th_pod_fits_no_card_of_25_instances_until_one_leaves",
    ),
    "an over-committed card has negative room": Mutation(
        "vrampack/cards/node.py",
        "return max(0, self.units - self.used_units)",
        "return self.units - self.used_units",
        f"{NODES}::test_free_units_never_go_below_zero_and_overcommitment_is_flagged",
    ),
    "a node that counts in other units is used": Mutation(
        "vrampack/cards/node.py",
        "problem=find_node_problem(facts, unit_mib=unit_mib),",
        "problem=facts.problem,",
        f"{NODES}::test_a_node_with_another_unit_keeps_its_count_and_reports_the_mismatch",
    ),
    "every container of a pod is read, however many there are": Mutation(
        "vrampack/cards/request.py",
        "return list(islice(requesting, MAX_REQUESTING_CONTAINERS + 1))",
        "return list(requesting)",
        f"{REQUEST}::test_a_pod_of_too_many_containers_is_refused_and_those_before_are_counted",
    ),
    "init containers hold nothing": Mutation(
        "vrampack/cards/request.py",
        "return max(running + sidecars, peak)",
        "return running + sidecars",
        f"{REQUEST}::test_held_units_follow_the_schedulers_formula",
    ),
    "init containers are added up though they run one by one": Mutation(
        "vrampack/cards/request.py",
        "peak = max(peak, container.units + sidecars)",
        "peak += container.units + sidecars",
        f"{REQUEST}::test_held_units_follow_the_schedulers_formula",
    ),
    "a sidecar takes nothing beside the init containers after it": Mutation(
        "vrampack/cards/request.py",
        "peak = max(peak, container.units + sidecars)",
        "peak = max(peak, container.units)",
        f"{REQUEST}::test_held_units_follow_the_schedulers_formula",
    ),
    "units that do not divide by the cards are rounded away": Mutation(
        "vrampack/cards/request.py",
        "if uneven is not None and not whole:",
        "if False:",
        f"{REQUEST}::test_every_containers_units_must_divide_by_the_card_count",
    ),
    "half a unit is no unit": Mutation(
        "vrampack/cards/units.py",
        "if value.denominator != 1:",
        "if False:",
        f"{UNITS}::test_a_fraction_of_a_unit_is_refused_with_a_reason",
    ),
    "limits are rounded up, and together are more than the card": Mutation(
        "vrampack/cards/units.py",
        "return max(0, memory_mib - reserve_mib) * given_units // card_units",
        "return round(max(0, memory_mib - reserve_mib) * given_units / card_units)",
        f"{UNITS}::test_limit_of_a_container",
    ),
    "the reserve is not kept back": Mutation(
        "vrampack/cards/units.py",
        "return max(0, memory_mib - reserve_mib) * given_units // card_units",
        "return memory_mib * given_units // card_units",
        f"{RECORDS}::test_the_reserve_lowers_every_limit",
    ),
    "a card has a unit more than its memory": Mutation(
        "vrampack/cards/units.py",
        "return memory_mib // unit_mib",
        "return -(-memory_mib // unit_mib)",
        f"{UNITS}::test_units_of_a_card",
    ),
    "the container is shown a card by its index, not by its uuid": Mutation(
        "vrampack/cards/records.py",
        'return f"{well_known.CDI_KIND}={uuid}" if node.devices == "cdi" else uuid',
        "return str(index)",
        f"{RECORDS}::test_the_record_of_one_card",
    ),
    "of two cards the larger one limits": Mutation(
        "vrampack/cards/records.py",
        "record[well_known.LIMIT_MIB_PREFIX + name] = str(min(limits))",
        "record[well_known.LIMIT_MIB_PREFIX + name] = str(max(limits))",
        f"{RECORDS}::test_two_cards_are_written_in_index_order_with_the_smaller_limit",
    ),
    "a whole card is written down as what was asked of it": Mutation(
        "vrampack/cards/allocation.py",
        "request.get_taken_units(card.units),",
        "request.units,",
        f"{RECORDS}::test_a_whole_card_holds_all_units_and_limits_nothing",
    ),
    "a damaged record is no record": Mutation(
        "vrampack/cards/records.py",
        "return UnreadableRecord(key, str(error))",
        "return None",
        "tests/cards/test_records_read.py::test_the_newest_generation_wins_even_if_unreadable",
    ),
    "a record's card is found by its index, whatever card is there now": Mutation(
        "vrampack/cards/holding.py",
        "card = cards.get(share.index if facts.legacy or share.uuid is None else share.uuid)",
        "card = cards.get(share.index)",
        f"{NODES}::test_an_agent_node_places_records_by_uuid_even_if_the_index_differs",
    ),
    "a card that is counted in other units holds what is written": Mutation(
        "vrampack/cards/holding.py",
        "return scale_units(share.units, card_units, card.units)",
        "return share.units",
        f"{NODES}::test_pods_keep_their_memory_when_their_card_is_counted_in_other_units[bound-a smaller unit]",
    ),
    "a share is rounded down": Mutation(
        "vrampack/cards/units.py",
        "return -(-units * to_units // from_units)",
        "return units * to_units // from_units",
        f"{SHARES}::test_after_a_change_of_units_new_pods_get_only_memory_that_nobody_was_promised",
    ),
    "a whole card keeps the units that it had": Mutation(
        "vrampack/cards/holding.py",
        "if share.whole:",
        "if False:",
        f"{SHARES}::test_a_share_counts_in_the_units_that_its_card_has_now[a whole card of a legacy node]",
    ),
    "an older record counts as written": Mutation(
        "vrampack/cards/holding.py",
        "if card_units is None and share.limit is not None:",
        "if False:",
        f"{SHARES}::test_a_share_counts_in_the_units_that_its_card_has_now[an older record]",
    ),
    "a record does not say of how many units": Mutation(
        "vrampack/cards/records.py",
        '| ({} if card.card_units is None else {"of": card.card_units})',
        "| {}",
        f"{RECORDS}::test_the_record_of_one_card",
    ),
    "a pod on no known card counts as written on cards of other units": Mutation(
        "vrampack/cards/holding.py",
        "{card.index: max([units, *(count_share_units(share, card) for share in known)]) for card in facts.cards},",
        "{card.index: units for card in facts.cards},",
        f"{NODES}::test_a_pod_on_a_missing_card_counts_on_every_card_in_the_units_of_each",
    ),
    "a pod without a record holds nothing": Mutation(
        "vrampack/cards/holding.py",
        "return Hold(pod, state, *_count_on_every_card(pod, shares, facts), _explain_unplaced(pod.record))",
        "return Hold(pod, state, {}, {}, _explain_unplaced(pod.record))",
        f"{NODES}::test_a_bound_pod_on_unknown_cards_counts_on_every_card[without a record]",
    ),
}
