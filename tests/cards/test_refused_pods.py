"""The annotation in which agents list pods to be evicted: what is written is read, and damage stays in its entry."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vrampack.cards.refused_pods import MAX_REFUSED_PODS, read_refused, write_refused

UIDS = st.from_regex(r"[0-9a-f]{8}-[0-9a-f]{4}", fullmatch=True)
REASONS = st.from_regex(r"[a-z][a-z_]{0,39}", fullmatch=True)


@given(st.dictionaries(UIDS, REASONS, max_size=MAX_REFUSED_PODS))
def test_written_entries_are_read_back(reasons: dict[str, str]) -> None:
    assert read_refused(write_refused(reasons)) == (reasons, ())


@given(
    st.text()
    | st.recursive(st.none() | st.integers() | st.text(), lambda of: st.lists(of) | st.dictionaries(st.text(), of)).map(
        json.dumps
    )
)
def test_no_node_annotation_stops_a_reader(text: str) -> None:
    reasons, _ = read_refused(text)
    assert len(reasons) <= MAX_REFUSED_PODS


def test_the_first_thirty_two_refused_pods_are_listed() -> None:
    reasons = {f"u-{number:03}": "no_record" for number in range(100)}
    assert list(read_refused(write_refused(reasons))[0]) == list(reasons)[:MAX_REFUSED_PODS]


DAMAGED = {
    "no JSON": ("{", "not JSON"),
    "another version": ('{"v":2,"pods":{}}', "v: 2 is not"),
    "no pods": ('{"v":1}', "pods: not an object"),
    "too many": (json.dumps({"v": 1, "pods": {str(at): {"reason": "x"} for at in range(33)}}), "at most 32 pods"),
}


@pytest.mark.parametrize(("text", "problem"), DAMAGED.values(), ids=DAMAGED)
def test_a_damaged_list_is_reported_and_ignored(text: str, problem: str) -> None:
    reasons, problems = read_refused(text)
    assert reasons == {}
    assert problem in problems[0]


def test_a_damaged_entry_hides_no_other_pod() -> None:
    text = json.dumps({"v": 1, "pods": {"a": {"reason": "no_record"}, "b": {"reason": "<b>"}, "c/d": {"reason": "x"}}})
    reasons, problems = read_refused(text)
    assert reasons == {"a": "no_record"}
    assert [problem.partition(".reason")[0] for problem in problems] == ["pods.b", "pods.c/d"]
