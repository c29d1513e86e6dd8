"""What is really used, as the extender keeps it of the agents' Leases."""

from __future__ import annotations

from extender.metrics import ExtenderMetrics
from extender.state.usage_leases import UsageLeases
from tests.support.builders import snapshot_node
from vrampack.cards.card_usage import CardUsage, write_usage
from vrampack.cards.inspection import build_inspection
from vrampack.cards.well_known import USAGE
from vrampack.kube.objects import LeaseObject, LeaseSpec, ObjectMeta
from vrampack.kube.reflector import ObjectReference

BUSY = CardUsage(1000, 3000, 45)


class LeaseHarness:
    """The sink, and its clock."""

    def __init__(self) -> None:
        self.now = 0.0
        self.leases = UsageLeases(ExtenderMetrics("test"), clock=lambda: self.now)


def lease(
    node: str, usage: CardUsage = BUSY, *, name: str = "", text: str | None = None, version: str = ""
) -> LeaseObject:
    annotations = {USAGE: write_usage({f"{node}-card": usage}) if text is None else text}
    meta = ObjectMeta(name=name or f"vrampack-usage-{node}", annotations=annotations, resource_version=version)
    return LeaseObject(meta, LeaseSpec(node, 900))


def test_the_newest_figures_of_a_node_count_until_they_expire() -> None:
    harness = LeaseHarness()
    harness.leases.on_changed(lease("n"))
    harness.leases.on_changed(lease("n", CardUsage(7, 7)))
    assert harness.leases.get_usage("n") == {"n-card": CardUsage(7, 7)}
    harness.now = 899
    assert harness.leases.get_usage("n")
    harness.now = 900
    assert harness.leases.get_usage("n") == {}


def test_a_list_with_an_unchanged_lease_renews_nothing() -> None:
    """A broken watch is followed by a list: otherwise figures of a dead agent would stay while watches keep breaking."""
    harness = LeaseHarness()
    harness.leases.on_changed(lease("n", version="7"))
    harness.now = 600
    for version, seen_at_900 in (("7", False), ("8", True)):
        harness.leases.on_list_started("expired")
        harness.leases.on_page([lease("n", version=version)])
        harness.leases.on_list_finished()
        harness.now = 900
        assert bool(harness.leases.get_usage("n")) is seen_at_900


def test_a_lease_affects_only_its_own_node() -> None:
    harness = LeaseHarness()
    harness.leases.on_changed(lease("n", name="vrampack-usage-m"))
    harness.leases.on_changed(lease("n", name="vrampack-scheduler"))
    assert (harness.leases.get_usage("n"), harness.leases.get_usage("m")) == ({}, {})


def test_deleted_and_unlisted_leases_are_forgotten() -> None:
    harness = LeaseHarness()
    harness.leases.on_page([lease("a"), lease("b"), lease("c")])
    harness.leases.on_deleted(lease("a"))
    harness.leases.on_list_started("expired")
    harness.leases.on_page([lease("b")])
    harness.leases.on_malformed(ObjectReference("vrampack-system", "vrampack-usage-d"), "not decoded")
    harness.leases.on_list_finished()
    assert [bool(harness.leases.get_usage(node)) for node in "abc"] == [False, True, False]


def test_unreadable_figures_clear_older_ones() -> None:
    harness = LeaseHarness()
    harness.leases.on_changed(lease("n"))
    harness.leases.on_changed(lease("n", text="{}"))
    assert harness.leases.get_usage("n") == {}


def test_a_card_shows_what_is_really_used_beside_what_is_held() -> None:
    node = snapshot_node(used=(4, 0))
    known = {node.cards[0].uuid or "": BUSY}
    devices = build_inspection(node, (), known)["devs"]
    assert isinstance(devices, list)
    assert [each["reallyUsed"] for each in devices] == [{"usedMiB": 1000, "peakMiB": 3000, "smPercent": 45}, None]
    plain = build_inspection(node, ())["devs"]
    assert isinstance(plain, list)
    assert ["reallyUsed" in each for each in plain] == [False, False]
