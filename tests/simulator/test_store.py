"""The store by itself: what calls over HTTP cannot show, and what must hold after any order of calls."""

from __future__ import annotations

import itertools
from datetime import UTC, datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vrampack.simulator import object_store as store_module
from vrampack.simulator.errors import StatusError
from vrampack.simulator.object_store import ObjectStore
from vrampack.simulator.patches import apply_merge_patch
from vrampack.simulator.resource_kinds import NODE, POD, Object, ResourceKind

NOON = datetime(2026, 1, 2, 12, 0, 0, tzinfo=UTC)


def a_store(*, log_length: int = 1000) -> ObjectStore:
    uids = (f"uid-{number}" for number in itertools.count(1))
    return ObjectStore(now=lambda: NOON, new_uid=lambda: next(uids), log_length=log_length)


def a_pod(name: str) -> Object:
    return {"metadata": {"name": name}, "spec": {"containers": [{"name": "main"}]}}


def annotate(store: ObjectStore, name: str, value: str) -> None:
    patch = {"metadata": {"annotations": {"x": value}}}
    store.patch(POD, "default", name, patch, apply_patch=apply_merge_patch, is_status=False)


def state(store: ObjectStore, kind: ResourceKind = POD) -> dict[str, Object]:
    return {item["metadata"]["name"]: item for item in store.read_page(kind, None).items}


def test_the_same_calls_make_the_same_objects() -> None:
    first, second = a_store(), a_store()
    for store in (first, second):
        store.create(POD, "default", a_pod("a"))
        store.bind("default", "a", {"metadata": {"name": "a"}, "target": {"name": "n"}})

    assert state(first) == state(second)
    metadata = state(first)["a"]["metadata"]
    assert (metadata["uid"], metadata["creationTimestamp"]) == ("uid-1", "2026-01-02T12:00:00Z")


def test_objects_held_by_a_reader_never_change() -> None:
    store = a_store()
    created = store.create(POD, "default", a_pod("a"))
    page = store.read_page(POD, None)

    annotate(store, "a", "1")
    store.delete(POD, "default", "a", {})

    assert "annotations" not in created["metadata"]
    assert page.items == [created]


def test_deletion_uses_the_remaining_grace_period() -> None:
    store = a_store()
    store.restore(POD, "default", a_pod("a") | {"spec": {"nodeName": "n"}})

    def leave(**options: int) -> str:
        return str(store.delete(POD, "default", "a", options))

    longer, shorter = leave(gracePeriodSeconds=20), leave(gracePeriodSeconds=5)
    assert "2026-01-02T12:00:20Z" in longer
    assert "2026-01-02T12:00:05Z" in shorter
    # 10 > 5: no sooner by this call, so nothing changes
    assert leave(gracePeriodSeconds=10) == shorter


def test_a_pod_restored_while_terminating_can_be_deleted() -> None:
    store = a_store()
    body = a_pod("a")
    body["metadata"]["deletionTimestamp"] = "2026-01-02T11:59:00Z"
    store.restore(POD, "default", body)

    store.delete(POD, "default", "a", {"gracePeriodSeconds": 0})

    assert state(store) == {}


def test_the_log_forgets_the_oldest_changes() -> None:
    store = a_store(log_length=4)
    start = store.version
    for name in ("a", "b", "c", "d", "e"):
        store.create(POD, "default", a_pod(name))

    with pytest.raises(StatusError, match="too old resource version") as refusal:
        store.read_changes_since(start, POD, None)

    assert refusal.value.code == 410
    # 5 changes are one over 4: the older half, 3, is dropped
    assert [change.item["metadata"]["name"] for change in store.read_changes_since(start + 3, POD, None)] == ["d", "e"]


def test_compaction_keeps_the_newest_version() -> None:
    store = a_store()
    store.create(POD, "default", a_pod("a"))
    version = store.version

    store.compact()
    store.create(POD, "default", a_pod("b"))

    assert store.version == version + 1
    assert [change.item["metadata"]["name"] for change in store.read_changes_since(version, POD, None)] == ["b"]
    with pytest.raises(StatusError, match="too old"):
        store.read_changes_since(version - 1, POD, None)


def test_paged_lists_in_progress_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_module, "MAX_SNAPSHOTS", 2)
    store = a_store()
    store.create(POD, "default", a_pod("a"))
    tokens = []
    for name in ("b", "c", "d"):
        store.create(POD, "default", a_pod(name))
        tokens.append(store.read_page(POD, None, limit=1).continue_token)

    assert len(store.read_page(POD, None, token=tokens[1]).items) == 2  # b and c of a, b, c
    with pytest.raises(StatusError, match="continue parameter is too old"):
        store.read_page(POD, None, token=tokens[0])


def test_namespaces_that_begin_alike_are_told_apart() -> None:
    store = a_store()
    for namespace in ("a", "a-b", "ab", "b"):
        store.create(POD, namespace, a_pod("p"))

    listed = [item["metadata"]["namespace"] for item in store.read_page(POD, "a").items]
    everything = [item["metadata"]["namespace"] for item in store.read_page(POD, None).items]

    assert listed == ["a"]
    assert everything == ["a-b", "a", "ab", "b"]  # etcd's order: "-" comes before "/"


STEPS = st.lists(
    st.tuples(st.sampled_from(["create", "annotate", "bind", "delete", "node"]), st.sampled_from(["a", "b", "c"])),
    max_size=30,
)


@settings(deadline=None)
@given(before=STEPS, after=STEPS)
def test_a_list_plus_the_changes_after_it_gives_the_current_state(
    before: list[tuple[str, str]], after: list[tuple[str, str]]
) -> None:
    store = a_store()
    _run(store, before)
    page = store.read_page(POD, None)
    replayed = {item["metadata"]["name"]: item for item in page.items}

    _run(store, after)
    changes = store.read_changes_since(page.version, POD, None)
    for change in changes:
        name = change.item["metadata"]["name"]
        assert (name in replayed) == (change.change_type != "ADDED")
        replayed[name] = change.item
        if change.change_type == "DELETED":
            del replayed[name]

    assert replayed == state(store)
    assert [str(change.version) for change in changes] == [
        change.item["metadata"]["resourceVersion"] for change in changes
    ]


def _run(store: ObjectStore, steps: list[tuple[str, str]]) -> None:
    """Carry out what is possible; a refusal must have changed nothing, which the replay shows."""
    for number, (step, name) in enumerate(steps):
        try:
            _carry_out(store, step, name, str(number))
        except StatusError:
            continue


def _carry_out(store: ObjectStore, step: str, name: str, value: str) -> None:
    if step == "create":
        store.create(POD, "default", a_pod(name))
    elif step == "annotate":
        annotate(store, name, value)
    elif step == "bind":
        store.bind("default", name, {"metadata": {"name": name}, "target": {"name": "n"}})
    elif step == "delete":
        store.delete(POD, "default", name, {})
    else:
        store.create(NODE, "", {"metadata": {"name": name}})
