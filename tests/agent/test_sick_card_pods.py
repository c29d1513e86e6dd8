"""Which pods are evicted from a card that is out, and how fast."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from tests.fakes.api import FakeKubeApi
from vrampack.agent.cluster.local_pod import LocalPod
from vrampack.agent.cluster.sick_card_pods import SickCardPods
from vrampack.agent.metrics import AgentMetrics
from vrampack.agent.settings import SickCardEviction
from vrampack.cards.node import CardFacts, CardVerdict, Share
from vrampack.cards.pod import Pod
from vrampack.cards.records import Record
from vrampack.kube.events import EventRecorder

PASSING = CardFacts(0, 15, 16130, uuid="GPU-0", healthy=False, reason="Unknown Error")
OUT = replace(PASSING, reason="XID 48: reset", verdict=CardVerdict("xid-48", "reset", "2026-11-23T10:00:00Z"))
MINUTE = 60.0


def a_pod(name: str, *uuids: str, is_static: bool = False, is_controlled: bool = True) -> LocalPod:
    record = Record("vrampack", tuple(Share(4, uuid, 0) for uuid in uuids or ("GPU-0",)))
    pod = Pod(name, "default", name, "gpu-0", record=record)
    return LocalPod(pod, {}, {}, is_static=is_static, is_controlled=is_controlled)


class SickCardHarness:
    """Two evictions in ten minutes."""

    def __init__(self, *pods: LocalPod, card: CardFacts = OUT, count: int = 2) -> None:
        self.now = 0.0
        self.pods = pods
        self.cards: tuple[CardFacts, ...] = (card,)
        self.metrics = AgentMetrics("test", node="gpu-0")
        self.told: list[Mapping[str, str]] = []
        events = EventRecorder(
            FakeKubeApi(), component="a", on_dropped=lambda _: None, clock=lambda: self.now, now=lambda: self.now
        )
        self.sick_card_pods = SickCardPods(
            events,
            self.metrics,
            SickCardEviction(pods=count, per_minutes=10),
            list_pods=lambda: self.pods,
            get_cards=lambda: self.cards,
            clock=lambda: self.now,
            on_evictions_changed=lambda evictions: self.told.append(dict(evictions)),
        )

    def report(self, *, minutes: float = 0) -> list[set[str]]:
        self.now += minutes * MINUTE
        self.sick_card_pods.report_pods()
        return [set(each) for each in self.told]

    @property
    def counted(self) -> float | None:
        labels = {"node": "gpu-0", "UUID": "GPU-0", "gpu": "0"}
        return self.metrics.registry.get_sample_value("vrampack_agent_unhealthy_card_pods", labels)


def test_pods_are_evicted_within_the_budget() -> None:
    """Two now; the third when the first is ten minutes old, and not because the two are gone."""
    world = SickCardHarness(a_pod("a"), a_pod("b"), a_pod("c"))
    assert world.report() == world.report(minutes=1) == [{"a", "b"}]
    world.pods = (a_pod("c"),)
    assert world.report(minutes=5) == [{"a", "b"}, set()]
    assert world.report(minutes=4) == [{"a", "b"}, set(), {"c"}]
    assert world.told[0]["a"] == "card_unhealthy"


def test_pod_on_two_sick_cards_counts_once() -> None:
    world = SickCardHarness(a_pod("a", "GPU-0", "GPU-1"), a_pod("b"), a_pod("c"))
    world.cards = (OUT, replace(OUT, index=1, uuid="GPU-1"))
    assert world.report() == [{"a", "b"}]


def test_a_pod_that_no_controller_recreates_is_not_listed() -> None:
    world = SickCardHarness(a_pod("bare", is_controlled=False), a_pod("static", is_static=True))
    assert world.report() == []
    assert world.counted == 2


def test_temporary_fault_evicts_no_pod() -> None:
    world = SickCardHarness(a_pod("a"), card=PASSING)
    assert world.report() == []
    assert world.counted == 1


def test_no_pod_is_evicted_unless_configured() -> None:
    assert SickCardHarness(a_pod("a"), count=0).report() == []


def test_pods_on_other_cards_are_not_evicted() -> None:
    assert SickCardHarness(a_pod("a", "GPU-1")).report() == []


def test_a_recovered_card_unlists_its_pods() -> None:
    world = SickCardHarness(a_pod("a"))
    world.report()
    world.cards = (replace(OUT, healthy=True, reason="", verdict=None),)
    assert world.report() == [{"a"}, set()]
    assert world.counted is None
