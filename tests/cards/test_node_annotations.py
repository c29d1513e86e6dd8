"""What a node says of itself: its agent's annotations, the cordon, what was observed, and the older form."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.builders import UNIT_MIB, card_facts
from vrampack.cards.node import CardFacts, NodeFacts, Share, build_node
from vrampack.cards.node_annotations import NodeReading, read_node, write_cards
from vrampack.cards.request import REQUEST_WORDS, UNLISTED_WORDS

PATIENT = settings(deadline=None)
"""A busy machine is no bug."""

CARDS = "vrampack.dev/cards"
OBSERVED = "vrampack.dev/observed"
CORDONED = "vrampack.dev/cordoned-cards"
MEMORY = "aliyun.com/gpu-mem"
COUNT = "aliyun.com/gpu-count"

Json = dict[str, object]


def a_card(**fields: object) -> Json:
    """One card of the annotation, as the contract shows it."""
    card: Json = {"uuid": "GPU-a", "index": 0, "model": "Tesla V100", "memory_mib": 16130, "units": 15}
    return card | {"healthy": True, "numa": 0, "mig_parent": None} | fields


def cards_text(*cards: object, **fields: object) -> str:
    value: Json = {"v": 1, "unit_mib": 1024, "injection": "exact", "devices": "uuid"}
    return json.dumps(value | {"cards": cards or [a_card()]} | fields)


def read(annotations: Mapping[str, str], allocatable: Mapping[str, str] | None = None) -> NodeReading:
    return read_node("n", annotations, allocatable or {}, unit_mib=UNIT_MIB)


def test_the_agents_annotation_becomes_the_nodes_facts() -> None:
    mig = a_card(uuid="MIG-b", index=1, units=9, memory_mib=9984, healthy=False, numa=-1, mig_parent="GPU-p")
    reading = read_node(
        "n",
        {CARDS: cards_text(mig, a_card(), injection="cdi", devices="cdi")},
        {MEMORY: "15"},
        unit_mib=UNIT_MIB,
        address="10.0.0.1",
    )
    assert reading.problems == ()
    assert reading.facts == NodeFacts(
        "n",
        (
            CardFacts(0, 15, 16130, "GPU-a", "Tesla V100", numa=0),
            CardFacts(1, 9, 9984, "MIG-b", "Tesla V100", healthy=False, numa=-1, mig_parent="GPU-p"),
        ),
        unit_mib=1024,
        injection="cdi",
        devices="cdi",
        address="10.0.0.1",
        offered_units=15,
    )


def test_what_the_agent_understands_and_can_limit_is_read() -> None:
    """Words that this version does not know are a later agent's."""
    text = cards_text(a_card(instances=25), serves=["whole-cards", "memory", "later"], hook=True)
    facts = read({CARDS: text}).facts
    assert facts.serves == {"memory", "whole-cards"}
    assert (facts.has_hook, facts.cards[0].instances) == (True, 25)
    assert build_node(facts, (), unit_mib=UNIT_MIB).unserved_words == {"several-cards", "uneven-cards"}


def test_an_agent_that_lists_no_words_understands_those_of_its_time() -> None:
    facts = read({CARDS: cards_text()}).facts
    assert (facts.serves, facts.has_hook, facts.cards[0].instances) == (UNLISTED_WORDS, False, None)
    assert build_node(facts, (), unit_mib=UNIT_MIB).unserved_words == REQUEST_WORDS - UNLISTED_WORDS


def test_what_an_agent_publishes_is_read_back() -> None:
    cards = (CardFacts(0, 15, 16130, "GPU-a", instances=25), CardFacts(1, 15, 16130, "GPU-b"))
    text = write_cards(cards, unit_mib=1024, injection="cdi", serves={"memory"}, has_hook=True)
    want = NodeFacts("n", cards, unit_mib=1024, injection="cdi", serves=frozenset({"memory"}), has_hook=True)
    assert replace(read({CARDS: text}).facts, offered_units=None) == want


def test_omitted_fields_have_defaults() -> None:
    text = json.dumps({"v": 1, "unit_mib": 1024, "cards": [{"uuid": "GPU-a", "index": 0, "memory_mib": 1, "units": 0}]})
    want = NodeFacts("n", (CardFacts(0, 0, 1, "GPU-a"),), unit_mib=1024, offered_units=0)
    assert read({CARDS: text}).facts == want


def test_unknown_fields_are_ignored() -> None:
    assert read({CARDS: cards_text(a_card(color="green"), more=[1])}).problems == ()


def test_the_annotation_wins_over_what_is_advertised() -> None:
    assert len(read({CARDS: cards_text()}, {MEMORY: "64", COUNT: "4"}).facts.cards) == 1


DAMAGED: dict[str, tuple[str, str]] = {
    "empty": ("", "not JSON"),
    "cut": (cards_text()[:-2], "not JSON"),
    "no object": ("[]", "not an object"),
    "null": ("null", "not an object"),
    "NaN": (cards_text().replace("16130", "NaN"), "NaN is not a number"),
    "a key twice": ('{"v":1,"v":1}', "a key appears twice"),
    "half a surrogate pair": (cards_text(a_card(model="\ud800")), "not JSON"),
    "deep": ("[" * 100_000, "not JSON"),
    "digits without end": ('{"v":' + "1" * 10_000 + "}", "not JSON"),
    "no version": ('{"unit_mib":1024,"cards":[]}', "v: None is not a whole number from 1 to 1"),
    "version 2": (cards_text(v=2), "v: 2 is not"),
    "version true": (cards_text(v=True), "v: True is not"),
    "no cards": (cards_text(cards=None), "cards: not a list"),
    "cards by name": (cards_text(cards={}), "cards: not a list"),
    "too many cards": (cards_text(*[a_card()] * 257), "cards: not a list of at most 256 cards"),
    "no unit": (cards_text(unit_mib=None), "unit_mib: None is not"),
    "a unit of 0": (cards_text(unit_mib=0), "unit_mib: 0 is not"),
    "a unit of text": (cards_text(unit_mib="1024"), "unit_mib: 1024 is not"),
    "another form of device": (cards_text(devices=["uuid"]), "devices: \"['uuid']\" is none of uuid, cdi"),
    "words of text": (cards_text(serves="memory"), "serves: not a list of at most 256 words"),
    "words of numbers": (cards_text(serves=[1]), "serves: not a list of at most 256 words"),
    "too many words": (cards_text(serves=["memory"] * 257), "serves: not a list of at most 256 words"),
    "a hook of text": (cards_text(hook="yes"), "hook: neither true nor false"),
    "instances of text": (cards_text(a_card(instances="25")), "cards[0].instances: 25 is not"),
    "another unit beside an unknown injection": (cards_text(unit_mib=0, injection="nri"), "unit_mib: 0 is not"),
    "a card of text": (cards_text(a_card(), "GPU-b"), "cards[1]: not an object"),
    "no uuid": (cards_text(a_card(uuid=None)), "cards[0].uuid: not a uuid"),
    "an empty uuid": (cards_text(a_card(uuid="")), "cards[0].uuid: not a uuid"),
    "a word of the runtime's": (cards_text(a_card(uuid="all")), "cards[0].uuid: 'all' is not a uuid"),
    "another, in capitals": (cards_text(a_card(uuid=" Void")), "cards[0].uuid: ' Void' is not a uuid"),
    "an index": (cards_text(a_card(uuid="0")), "cards[0].uuid: '0' is not a uuid"),
    "two uuids in one": (cards_text(a_card(uuid="GPU-a,GPU-b")), "cards[0].uuid: not a uuid"),
    "no index": (cards_text(a_card(index=None)), "cards[0].index: None is not"),
    "a negative index": (cards_text(a_card(index=-1)), "cards[0].index: -1 is not"),
    "an index of text": (cards_text(a_card(index="0")), "cards[0].index: 0 is not"),
    "no units": (cards_text(a_card(units=None)), "cards[0].units: None is not"),
    "units in fractions": (cards_text(a_card(units=1.5)), "cards[0].units: 1.5 is not"),
    "units without end": (cards_text(a_card(units=2**63)), "cards[0].units: 9223372036854775808 is not"),
    "negative memory": (cards_text(a_card(memory_mib=-1)), "cards[0].memory_mib: -1 is not"),
    "health of text": (cards_text(a_card(healthy="yes")), "cards[0].healthy: neither true nor false"),
    "a model of numbers": (cards_text(a_card(model=100)), "cards[0].model: not a text"),
    "numa of text": (cards_text(a_card(numa="0")), "cards[0].numa: 0 is not"),
    "a parent of numbers": (cards_text(a_card(mig_parent=1)), "cards[0].mig_parent: not a text"),
    "a uuid twice": (cards_text(a_card(), a_card(index=1)), "cards: a uuid or an index appears twice"),
    "an index twice": (cards_text(a_card(), a_card(uuid="GPU-b")), "cards: a uuid or an index appears twice"),
}


@pytest.mark.parametrize("injection", ["nri", "", 7, None, ["exact"]], ids=str)
def test_an_unknown_injection_mode_hides_no_card(injection: object) -> None:
    """A newer agent's mode: its cards and what they hold stay known, and the problem states that no more pods go there."""
    reading = read({CARDS: cards_text(a_card(), injection=injection)})
    known = read({CARDS: cards_text(a_card())})
    assert (reading.facts.cards, reading.facts.injection) == (known.facts.cards, None)
    assert f"injection: {str(injection)!r} is not known to this version" in reading.facts.problem
    assert reading.problems == (reading.facts.problem,)


@pytest.mark.parametrize(("text", "words"), DAMAGED.values(), ids=DAMAGED)
def test_a_damaged_annotation_is_reported_as_a_node_problem_with_its_path(text: str, words: str) -> None:
    reading = read({CARDS: text}, {MEMORY: "15", COUNT: "1"})
    assert reading.problems == (reading.facts.problem,)
    assert reading.facts.problem.startswith(f'annotation "{CARDS}": {words}')
    assert reading.facts.cards == ()


ADVERTISED = {
    # 30 / 2 = 15 each
    "two cards": ({MEMORY: "30", COUNT: "2"}, card_facts(15, 15)),
    # 31 / 2 = 15, and one unit that no card has
    "totals that do not divide": ({MEMORY: "31", COUNT: "2"}, card_facts(15, 15)),
    # 3 / 4 = 0
    "less than a unit each": ({MEMORY: "3", COUNT: "4"}, card_facts(0, 0, 0, 0)),
    "other forms of numbers": ({MEMORY: "15e0", COUNT: "1000m"}, card_facts(15)),
    "no count": ({MEMORY: "30"}, ()),
    "a count of none": ({MEMORY: "30", COUNT: "0"}, ()),
    "no memory": ({COUNT: "2"}, ()),
    "neither": ({}, ()),
    "more cards than any node has": ({MEMORY: "4096", COUNT: "4096"}, ()),
    "more units than any card has": ({MEMORY: "10G", COUNT: "1"}, ()),
}


@pytest.mark.parametrize(("allocatable", "cards"), ADVERTISED.values(), ids=ADVERTISED)
def test_totals_of_another_plugin_become_equal_cards_without_uuids(
    allocatable: dict[str, str], cards: tuple[CardFacts, ...]
) -> None:
    reading = read({}, allocatable)
    assert reading.problems == ()
    assert reading.facts.legacy
    assert reading.facts.unit_mib is None
    assert reading.facts.cards == tuple(CardFacts(card.index, card.units, card.memory_mib) for card in cards)


@pytest.mark.parametrize("resource", [MEMORY, COUNT])
@pytest.mark.parametrize("text", ["many", "-1", "1.5", " "])
def test_an_invalid_advertised_amount_is_reported_as_a_node_problem(resource: str, text: str) -> None:
    reading = read({}, {MEMORY: "30", COUNT: "2"} | {resource: text})
    assert reading.problems == (reading.facts.problem,)
    assert reading.facts.problem.startswith(f'status.allocatable["{resource}"]: {text!r} is ')


def test_cordoned_cards_are_a_comma_list() -> None:
    assert read({CARDS: cards_text(), CORDONED: " GPU-a ,,GPU-b"}).facts.cordoned == {"GPU-a", "GPU-b"}
    assert read({CARDS: cards_text(), CORDONED: ""}).facts.cordoned == frozenset()


def test_observed_cards_are_kept_by_pod() -> None:
    pods = {
        "uid-1": [{"uuid": "GPU-a", "units": 4}],
        "uid-2": [{"uuid": "GPU-a", "units": 1}, {"uuid": "GPU-b", "units": 2}],
    }
    reading = read({CARDS: cards_text(), OBSERVED: json.dumps({"v": 1, "pods": pods})})
    assert reading.problems == ()
    assert reading.facts.observed == {
        "uid-1": (Share(4, "GPU-a"),),
        "uid-2": (Share(1, "GPU-a"), Share(2, "GPU-b")),
    }


UNOBSERVED: dict[str, tuple[str, str]] = {
    "not JSON": ("{", "not JSON"),
    "no object": ("[]", "not an object"),
    "version 2": ('{"v":2,"pods":{}}', "v: 2 is not"),
    "no pods": ('{"v":1}', "pods: not an object"),
}


@pytest.mark.parametrize(("text", "words"), UNOBSERVED.values(), ids=UNOBSERVED)
def test_a_damaged_observation_leaves_the_cards_alone(text: str, words: str) -> None:
    reading = read({CARDS: cards_text(), OBSERVED: text})
    assert (len(reading.facts.cards), reading.facts.problem, reading.facts.observed) == (1, "", None)
    (problem,) = reading.problems
    assert problem.startswith(f'annotation "{OBSERVED}": {words}')


OF_ONE_POD: dict[str, tuple[object, str]] = {
    "no list": ({}, "pods.bad: not a list"),
    "no card": ([], "pods.bad: not a list with at least one card"),
    "no share": (["GPU-a"], "pods.bad[0]: not an object"),
    "no units": ([{"uuid": "GPU-a"}], "pods.bad[0].units: None is not"),
    "units of nothing": ([{"uuid": "GPU-a", "units": 0}], "pods.bad[0].units: 0 is not"),
    "no name": ([{"units": 4}], "pods.bad[0]: names no card"),
    "a card twice": ([{"uuid": "GPU-a", "units": 4}, {"uuid": "GPU-a", "units": 4}], "pods.bad: names a card twice"),
}


@pytest.mark.parametrize(("shares", "words"), OF_ONE_POD.values(), ids=OF_ONE_POD)
def test_a_damaged_entry_of_one_pod_hides_no_other(shares: object, words: str) -> None:
    pods = {"bad": shares, "good": [{"uuid": "GPU-a", "units": 4}]}
    reading = read({CARDS: cards_text(), OBSERVED: json.dumps({"v": 1, "pods": pods})})
    assert reading.facts.observed == {"good": (Share(4, "GPU-a"),)}
    (problem,) = reading.problems
    assert problem.startswith(f'annotation "{OBSERVED}": {words}')


def test_the_problem_of_a_node_with_another_unit_names_both_units() -> None:
    facts = read({CARDS: cards_text(unit_mib=256)}).facts
    assert facts.problem == ""
    node = build_node(facts, (), unit_mib=UNIT_MIB)
    assert (node.unit_mib, node.problem) == (
        256,
        "its unit is 256 MiB, the cluster's is 1024 MiB; nothing is placed here until they agree",
    )


@pytest.mark.parametrize("annotations", [{CARDS: cards_text()}, {}], ids=["agent", "legacy"])
def test_a_node_of_the_clusters_unit_has_no_problem(annotations: dict[str, str]) -> None:
    node = build_node(read(annotations).facts, (), unit_mib=UNIT_MIB)
    assert (node.unit_mib, node.problem) == (UNIT_MIB, "")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | st.sampled_from(["GPU-a", "exact"]),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(["v", "cards", "pods", "uuid", "index", "units", "unit_mib"]), inner, max_size=5
        )
    ),
    max_leaves=20,
)
VALUES = (
    st.text(max_size=60)
    | JSON.map(json.dumps)
    | JSON.map(lambda cards: json.dumps({"v": 1, "pods": cards, "cards": cards}))
)


@PATIENT
@given(VALUES, VALUES, st.text(max_size=20), st.text(max_size=10))
def test_no_node_annotation_raises(cards: str, observed: str, cordoned: str, amount: str) -> None:
    reading = read({CARDS: cards, OBSERVED: observed, CORDONED: cordoned}, {MEMORY: amount, COUNT: amount})
    for problem in reading.problems:
        problem.encode()
    assert not (reading.facts.problem and reading.facts.cards)


FIELDS: list[Callable[[object], str]] = [
    lambda value: cards_text(a_card(units=value)),
    lambda value: cards_text(a_card(uuid=value)),
    lambda value: cards_text(a_card(healthy=value)),
    lambda value: cards_text(unit_mib=value),
    lambda value: cards_text(cards=value),
]


@PATIENT
@given(st.sampled_from(FIELDS), JSON)
def test_any_value_in_any_field_is_read_or_reported_as_a_problem(field: Callable[[object], str], value: object) -> None:
    reading = read({CARDS: field(value)})
    assert bool(reading.problems) == bool(reading.facts.problem)
