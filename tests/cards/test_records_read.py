"""Reading records of four generations: which one wins, when they disagree, and what damage looks like."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.builders import pod_request
from vrampack.cards.node import Share
from vrampack.cards.records import Record, UnreadableRecord, read_record

PATIENT = settings(deadline=None)
"""A busy machine is no bug."""

OURS = "vrampack.dev/allocation"
V3 = "gpushare.alibabacloud.com/gpumemory"
V2 = "scheduler.framework.gpushare.allocation"
IDX = "ALIYUN_COM_GPU_MEM_IDX"
POD = "ALIYUN_COM_GPU_MEM_POD"


def ours(*cards: dict[str, object], **containers: object) -> str:
    return json.dumps({"v": 1, "cards": cards, "containers": containers})


def own(index: int, units: object, mib: object) -> dict[str, object]:
    """A container's part of a card."""
    return {"uuid": f"GPU-{index}", "units": units, "mib": mib}


def on(index: int, units: int = 4) -> dict[str, object]:
    return {"uuid": f"GPU-{index}", "index": index, "units": units, "whole": False}


READ: dict[str, tuple[dict[str, str], Record]] = {
    "ours": ({OURS: ours(on(0))}, Record("vrampack", (Share(4, "GPU-0", 0),))),
    "ours, two cards": (
        {OURS: ours(on(0), on(2))},
        Record("vrampack", (Share(4, "GPU-0", 0), Share(4, "GPU-2", 2))),
    ),
    "ours, of a legacy node": (
        {OURS: ours({"uuid": None, "index": 1, "units": 4, "whole": False})},
        Record("vrampack", (Share(4, None, 1),)),
    ),
    "ours, by uuid alone": ({OURS: ours({"uuid": "GPU-0", "units": 4})}, Record("vrampack", (Share(4, "GPU-0"),))),
    "ours, with the card's units": (
        {OURS: ours(on(0) | {"of": 15}, on(1, 14) | {"of": 14, "whole": True})},
        Record("vrampack", (Share(4, "GPU-0", 0, card_units=15), Share(14, "GPU-1", 1, whole=True, card_units=14))),
    ),
    # of two containers the one with more units says more exactly of how many units of the card they are
    "ours, older, with limits": (
        {OURS: ours(on(0, 5), main=[own(0, 4, 4301), own(1, 9, 9678)], side=[own(0, 1, 1075)])},
        Record("vrampack", (Share(5, "GPU-0", 0, limit=(4, 4301)),)),
    ),
    "ours, older, with limits that cannot be read": (
        {OURS: ours(on(0), main=[own(0, "4", 4301), own(0, 4, None), 4], side={"uuid": "GPU-0"})},
        Record("vrampack", (Share(4, "GPU-0", 0),)),
    ),
    "ours, with fields of a later version": (
        {OURS: ours(on(0) | {"color": "green"})},
        Record("vrampack", (Share(4, "GPU-0", 0),)),
    ),
    # container 0 has 1, container 1 has 7, both on card 1: 1 + 7 = 8
    "v2, two containers on one card": (
        {V2: '{"0":{"1":1},"1":{"1":7}}'},
        Record("gpushare-v2", (Share(8, index=1),)),
    ),
    # card 0: 2 + 1, card 3: 5
    "v2, several cards": (
        {V2: '{"0":{"3":5,"0":2},"2":{"0":1}}'},
        Record("gpushare-v2", (Share(3, index=0), Share(5, index=3))),
    ),
    "v2, a container of nothing": ({V2: '{"0":{"0":0},"1":{"1":7}}'}, Record("gpushare-v2", (Share(7, index=1),))),
    "v3": ({V3: '{"0":{"1":1},"1":{"1":7}}'}, Record("gpushare-v3", (Share(8, index=1),))),
    "v1": ({IDX: "2", POD: "5"}, Record("gpushare-v1", (Share(5, index=2),))),
    # the pod asks 8 units on 2 cards: 4 each, all of it on the one card that v1 can name
    "v1 without a size": ({IDX: "2"}, Record("gpushare-v1", (Share(8, index=2),))),
}


@pytest.mark.parametrize(("annotations", "want"), READ.values(), ids=READ)
def test_four_generations_are_read(annotations: dict[str, str], want: Record) -> None:
    assert read_record(annotations | {"other": "x"}, pod_request(8, count=2)) == want


NO_RECORD: dict[str, dict[str, str]] = {
    "nothing": {},
    "a size without a card": {POD: "4", "ALIYUN_COM_GPU_MEM_DEV": "15", "ALIYUN_COM_GPU_MEM_ASSIGNED": "false"},
    "what a container is given": {"visible-devices.vrampack.dev/main": "GPU-0", "limit-mib.vrampack.dev/main": "4301"},
    "compute alone": {"gpushare.alibabacloud.com/core-percentage": '{"0":{"1":50}}'},
}


@pytest.mark.parametrize("annotations", NO_RECORD.values(), ids=NO_RECORD)
def test_annotations_that_name_no_card_are_no_record(annotations: dict[str, str]) -> None:
    assert read_record(annotations, pod_request()) is None


ALL = {OURS: ours(on(0)), V3: '{"0":{"0":4}}', V2: '{"0":{"0":4}}', IDX: "0", POD: "4"}
GENERATIONS = {OURS: "vrampack", V3: "gpushare-v3", V2: "gpushare-v2", IDX: "gpushare-v1"}


@pytest.mark.parametrize("newest", range(4))
def test_the_first_generation_that_is_there_wins(newest: int) -> None:
    present = {key: text for key, text in ALL.items() if key not in list(GENERATIONS)[:newest]}
    record = read_record(present, None)
    assert isinstance(record, Record)
    assert record.generation == list(GENERATIONS.values())[newest]
    assert record.is_ours == (newest == 0)


@pytest.mark.parametrize("newest", range(4))
def test_the_newest_generation_wins_even_if_unreadable(newest: int) -> None:
    """An older record may have been replaced, so it is not used as a guess."""
    key = list(GENERATIONS)[newest]
    present = {key: text for key, text in ALL.items() if key not in list(GENERATIONS)[:newest]} | {key: "?"}
    record = read_record(present, pod_request())
    assert isinstance(record, UnreadableRecord)
    assert record.key == key


@pytest.mark.parametrize("older", [V3, V2, IDX])
def test_an_unreadable_older_record_does_not_affect_a_newer_one(older: str) -> None:
    record = read_record({OURS: ours(on(0)), older: "?"}, pod_request())
    assert isinstance(record, Record)
    assert (record.generation, record.shares) == ("vrampack", (Share(4, "GPU-0", 0),))
    assert record.disagreement.startswith(f"{older} cannot be read: ")


DISAGREEMENTS: dict[str, tuple[dict[str, str], str]] = {
    "the same": (ALL, ""),
    # sums may differ: 4 and 1 + 6 = 7, on the same card
    "other sums": ({OURS: ours(on(0)), V2: '{"0":{"0":1},"1":{"0":6}}'}, ""),
    "the same cards in another order": ({OURS: ours(on(2), on(0)), V2: '{"0":{"0":4},"1":{"2":4}}'}, ""),
    "another card": ({OURS: ours(on(0)), V2: '{"0":{"1":4}}'}, f"{V2} names cards [1], the vrampack record [0]"),
    "a card more": (
        {OURS: ours(on(0)), V2: '{"0":{"0":4,"1":4}}'},
        f"{V2} names cards [0, 1], the vrampack record [0]",
    ),
    "a card less": ({OURS: ours(on(0), on(1)), IDX: "0"}, f"{IDX} names cards [0], the vrampack record [0, 1]"),
    "between the older ones": ({V3: '{"0":{"0":4}}', IDX: "1"}, f"{IDX} names cards [1], the gpushare-v3 record [0]"),
    "the newest of two": (
        {OURS: ours(on(0)), V3: '{"0":{"1":4}}', IDX: "2"},
        f"{V3} names cards [1], the vrampack record [0]",
    ),
    "one that names no index": ({OURS: ours({"uuid": "GPU-0", "units": 4}), V2: '{"0":{"1":4}}'}, ""),
}


@pytest.mark.parametrize(("annotations", "want"), DISAGREEMENTS.values(), ids=DISAGREEMENTS)
def test_records_that_name_other_cards_disagree(annotations: dict[str, str], want: str) -> None:
    record = read_record(annotations, pod_request())
    assert isinstance(record, Record)
    assert record.disagreement == want


BIG = "9" * 5000

DAMAGED: dict[str, tuple[dict[str, str], str]] = {
    "empty": ({OURS: ""}, "not JSON"),
    "cut": ({OURS: ours(on(0))[:-3]}, "not JSON"),
    "no object": ({OURS: "[1]"}, "not an object"),
    "null": ({OURS: "null"}, "not an object"),
    "NaN": ({OURS: '{"v":NaN}'}, "NaN is not a number"),
    "infinity": ({OURS: '{"v":-Infinity}'}, "-Infinity is not a number"),
    "a key twice": ({OURS: '{"v":1,"cards":[{"uuid":"a","uuid":"b"}]}'}, "a key appears twice"),
    "half a surrogate pair": ({OURS: ours(on(0) | {"uuid": "\ud800"})}, "not JSON"),
    "deep lists": ({OURS: "[" * 100_000}, "not JSON"),
    "deep objects": ({OURS: '{"a":' * 100_000}, "not JSON"),
    "digits without end": ({OURS: '{"v":' + BIG + "}"}, "not JSON"),
    "no version": ({OURS: '{"cards":[]}'}, "v: None is not a whole number from 1 to 1"),
    "a later version": ({OURS: ours(on(0)).replace('"v": 1', '"v": 2')}, "v: 2 is not"),
    "version true": ({OURS: ours(on(0)).replace('"v": 1', '"v": true')}, "v: True is not"),
    "no cards": ({OURS: '{"v":1}'}, "cards: not a list"),
    "an empty list": ({OURS: ours()}, "cards: not a list with at least one card"),
    "a card of text": ({OURS: '{"v":1,"cards":["GPU-0"]}'}, "cards[0]: not an object"),
    "a uuid of numbers": ({OURS: ours(on(0) | {"uuid": 7})}, "cards[0].uuid: neither a text nor null"),
    "an empty uuid": ({OURS: ours(on(0) | {"uuid": ""})}, "cards[0].uuid: neither"),
    "no name at all": ({OURS: ours(on(0), {"uuid": None, "units": 4})}, "cards[1]: names no card"),
    "an index of text": ({OURS: ours(on(0) | {"index": "0"})}, "cards[0].index: 0 is not"),
    "a negative index": ({OURS: ours(on(0) | {"index": -1})}, "cards[0].index: -1 is not"),
    "an index without end": ({OURS: ours(on(0) | {"index": 2**63})}, "cards[0].index: 9223372036854775808 is not"),
    "no units": ({OURS: ours({"uuid": "GPU-0", "index": 0})}, "cards[0].units: None is not"),
    "units of nothing": ({OURS: ours(on(0, 0))}, "cards[0].units: 0 is not"),
    "negative units": ({OURS: ours(on(0, -4))}, "cards[0].units: -4 is not"),
    "units in fractions": ({OURS: ours(on(0) | {"units": 4.0})}, "cards[0].units: 4.0 is not"),
    "of a card of no units": ({OURS: ours(on(0) | {"of": 0})}, "cards[0].of: 0 is not a whole number from 1"),
    "of a card of units of text": ({OURS: ours(on(0) | {"of": "15"})}, "cards[0].of: 15 is not"),
    "units of 1e400": ({OURS: '{"v":1,"cards":[{"uuid":"a","units":1e400}]}'}, "cards[0].units: inf is not"),
    "a card twice": ({OURS: ours(on(0), on(0))}, "cards: names a card twice"),
    "v3: no object": ({V3: "4"}, "not an object"),
    "v3: a container of numbers": ({V3: '{"0":4}'}, "0: not an object"),
    "v2: nothing": ({V2: "{}"}, "names no card"),
    "v2: nothing on any card": ({V2: '{"0":{"0":0}}'}, "names no card"),
    "v2: a card by name": ({V2: '{"0":{"GPU-0":4}}'}, "0: 'GPU-0' is not a card index"),
    "v2: a negative card": ({V2: '{"1":{"-1":4}}'}, "1: '-1' is not a card index"),
    "v2: a card without end": ({V2: f'{{"0":{{"{BIG}":4}}}}'}, f"0: '{BIG[:60]}' is not a card index"),
    "v2: units of text": ({V2: '{"0":{"2":"4"}}'}, "0.2: 4 is not a whole number"),
    "v2: negative units": ({V2: '{"0":{"2":-4}}'}, "0.2: -4 is not a whole number"),
    "v2: a card twice": ({V2: '{"0":{"2":4,"2":4}}'}, "a key appears twice"),
    "v1: no card": ({IDX: ""}, f"{IDX}: '' is not a card index"),
    "v1: gpushare's word for none": ({IDX: "-1", POD: "4"}, f"{IDX}: '-1' is not a card index"),
    "v1: Arabic digits": ({IDX: "٢", POD: "4"}, f"{IDX}: '٢' is not a card index"),
    "v1: a size of text": ({IDX: "0", POD: "four"}, f"{POD}: 'four' is not a number of units"),
    "v1: a size of nothing": ({IDX: "0", POD: "0"}, f"{POD}: 0 is not a whole number from 1"),
    "v1: a size without end": ({IDX: "0", POD: BIG}, f"{POD}: '{BIG[:60]}' is not"),
}


@pytest.mark.parametrize(("annotations", "words"), DAMAGED.values(), ids=DAMAGED)
def test_a_damaged_record_names_key_and_path(annotations: dict[str, str], words: str) -> None:
    record = read_record(annotations, pod_request())
    assert isinstance(record, UnreadableRecord)
    assert record.key == next(iter(annotations))
    assert record.problem.startswith(words)
    assert len(record.problem) < 300


def test_a_v1_record_without_a_size_needs_the_pods_request() -> None:
    assert read_record({IDX: "0"}, None) == UnreadableRecord(IDX, f"{POD} is missing and the pod requests nothing")


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=8)
    | st.sampled_from(["GPU-0", "0", "1"]),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.sampled_from(["v", "cards", "uuid", "index", "units", "0", "1", "-1"]), inner, max_size=5)
    ),
    max_leaves=20,
)
TEXTS = (
    st.text(max_size=60)
    | JSON.map(json.dumps)
    | JSON.map(lambda cards: json.dumps({"v": 1, "cards": cards}))
    | JSON.map(lambda cards: json.dumps({"0": cards, "1": {"0": 4}}))
    | st.sampled_from(["0", "1", "4", ours(on(0)), '{"0":{"0":4}}', '"\\udc00"', "{" * 5000, "1e999"])
)


@PATIENT
@given(st.dictionaries(st.sampled_from([OURS, V3, V2, IDX, POD]), TEXTS))
def test_any_record_text_is_readable_and_printable(annotations: dict[str, str]) -> None:
    record = read_record(annotations, pod_request())
    assert (record is None) == annotations.keys().isdisjoint({OURS, V3, V2, IDX})
    repr(record).encode()
    if isinstance(record, UnreadableRecord):
        record.problem.encode()
    elif record is not None:
        assert record.shares
        assert all(share.units > 0 for share in record.shares)
        "".join(share.uuid or "" for share in record.shares).encode()


@pytest.mark.parametrize("depth", [10, 400, 900, 990, 1000, 5000])
@pytest.mark.parametrize(
    "form", ['{{"v":{}}}', '{{"v":1,"cards":{}}}', '{{"v":1,"cards":[{{"uuid":"a","units":{}}}]}}']
)
def test_deep_nesting_is_reported_as_a_problem(form: str, depth: int) -> None:
    """Around the interpreter's own limit too, where reading succeeds and showing might not."""
    for nested in ("[" * depth + "]" * depth, '{"a":' * depth + "1" + "}" * depth):
        assert isinstance(read_record({OURS: form.format(nested)}, None), UnreadableRecord)
