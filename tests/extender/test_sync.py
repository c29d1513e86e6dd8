"""How the sinks read objects, and when the ledger may be trusted."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from extender.autoscaling.node_rules import NodeRules
from extender.components import build_components
from extender.events import EventReason, ExtenderEventRecorder
from extender.metrics import ExtenderMetrics
from extender.settings import ExtenderConfiguration
from extender.state.ledger import Ledger
from extender.state.sync import RESOURCES, Freshness, NodeSink, PodSink, ProblemReporter, ReadinessCheck
from tests.fakes.api import FakeKubeApi
from tests.support.builders import UNIT_MIB
from tests.support.manifest_builders import cards_annotation, pod_manifest, published_card
from tests.support.scripted_readiness import ScriptedReadiness
from vrampack.cards.well_known import PLACEHOLDER_SCHEDULER
from vrampack.kube.objects import NodeObject, PodObject, PodStatus
from vrampack.kube.reflector import ObjectReference


class SyncFeed:
    """Both sinks over one ledger, with a clock, and the events that were asked for."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.metrics = ExtenderMetrics("test")
        self.events = Asked(self.metrics)
        settings = ExtenderConfiguration(apiVersion="vrampack.dev/v1", kind="ExtenderConfiguration")
        reporter = ProblemReporter(self.metrics, self.events)
        self.ledger = Ledger(unit_mib=UNIT_MIB, clock=lambda: self.seconds)
        build_components(
            ledger=self.ledger,
            api=FakeKubeApi(),
            events=self.events,
            reporter=reporter,
            metrics=self.metrics,
            settings=settings,
            readiness=ScriptedReadiness(),
            clock=lambda: self.seconds,
            now_ns=lambda: 1,
        )
        self.freshness = Freshness(clock=lambda: self.seconds, now=lambda: 1e9 + self.seconds, stale_seconds=120)
        self.rules = NodeRules("aliyun.com/gpu-mem")
        self.pods = PodSink(
            self.ledger, self.freshness, reporter, self.metrics, "aliyun.com/gpu-mem", pod_watchers=[self.rules]
        )
        self.nodes = NodeSink(self.ledger, self.freshness, reporter, self.metrics, settings)

    def list_all(self, *pods: PodObject, nodes: tuple[NodeObject, ...] = ()) -> None:
        for sink, objects in ((self.nodes, nodes), (self.pods, pods)):
            sink.on_list_started("start")
            sink.on_contact()
            sink.on_page(objects)  # type: ignore[arg-type]  # each sink is paired with its own kind above
            sink.on_list_finished()

    def violations(self, kind: str) -> float:
        return float(self.metrics.annotation_violations.labels(kind)._value.get())


class Asked(ExtenderEventRecorder):
    """An event writer that only remembers what it was asked for."""

    def __init__(self, metrics: ExtenderMetrics) -> None:
        super().__init__(FakeKubeApi(), metrics, clock=lambda: 0.0, now=lambda: 0.0)
        self.asked: list[tuple[str, str]] = []
        self.cards: list[int | None] = []
        """The card of each one about a node."""

    def record_pod_event(self, pod: Any, reason: str, text: str, *, is_warning: bool = True) -> None:  # noqa: ANN401, ARG002 - the real one's shape
        self.asked.append((pod.name, reason))

    def record_node_event(
        self,
        name: str,
        reason: str,
        text: str,  # noqa: ARG002 - the real one's shape
        *,
        card: int | None = None,
        is_warning: bool = True,  # noqa: ARG002 - the real one's shape
    ) -> None:
        self.asked.append((name, reason))
        self.cards.append(card)


@pytest.fixture
def feed() -> SyncFeed:
    return SyncFeed()


def node(name: str, text: str | None = None, **annotations: str) -> NodeObject:
    given = ({} if text is None else {"vrampack.dev/cards": text}) | annotations
    return msgspec.convert({"metadata": {"name": name, "annotations": given}}, NodeObject)


def pod(name: str, *, bound: str = "", **annotations: str) -> PodObject:
    body = pod_manifest(name, "4", uid=name, namespace="default", annotations=annotations)
    body["spec"]["nodeName"] = bound
    return read_object(body)


def read_object(body: Any) -> PodObject:  # noqa: ANN401 - the pod as JSON
    return msgspec.json.decode(msgspec.json.encode(body), type=PodObject)


def test_the_ledger_is_not_trusted_before_both_lists_are_complete(feed: SyncFeed) -> None:
    assert feed.freshness.find_unready_reason() == "the list of nodes is not complete yet"
    feed.nodes.on_contact()
    feed.nodes.on_list_started("start")
    feed.nodes.on_list_finished()
    assert feed.freshness.find_unready_reason() == "the list of pods is not complete yet"
    feed.pods.on_list_started("start")
    feed.pods.on_contact()  # its first page
    assert feed.freshness.find_unready_reason() == "the list of pods is not complete yet"
    feed.list_all()
    assert feed.freshness.find_unready_reason() == ""


@pytest.mark.parametrize(("silence", "is_stale"), [(119.0, False), (120.0, False), (121.0, True)])
def test_the_ledger_is_stale_after_two_minutes_of_silence(feed: SyncFeed, silence: float, *, is_stale: bool) -> None:
    feed.list_all()
    feed.seconds = silence
    assert bool(feed.freshness.find_unready_reason()) is is_stale


def test_pods_alone_can_be_stale(feed: SyncFeed) -> None:
    feed.list_all()
    feed.seconds = 200.0
    feed.nodes.on_contact()
    assert feed.freshness.find_unready_reason() == "the API server has sent nothing about pods for 200 s"


def test_a_node_missing_from_a_list_is_removed(feed: SyncFeed) -> None:
    feed.list_all(
        nodes=(node("n", cards_annotation(published_card(0))), node("m", cards_annotation(published_card(0))))
    )
    feed.list_all(nodes=(node("m", cards_annotation(published_card(0))),))
    assert [each.name for each in feed.ledger.list_nodes()] == ["m"]


def test_an_unreadable_annotation_refuses_its_node_and_no_other(feed: SyncFeed) -> None:
    feed.list_all(nodes=(node("bad", "{"), node("good", cards_annotation(published_card(0)))))
    bad, good = feed.ledger.list_nodes()
    assert (bad.name, bad.cards) == ("bad", ())
    assert bad.problem.startswith('annotation "vrampack.dev/cards": not JSON')
    assert good.free_units == 15
    assert feed.events.asked == [("bad", EventReason.ANNOTATION_REJECTED)]
    assert feed.violations("node_unreadable") == 1


def test_a_problem_is_logged_once_and_not_with_every_heartbeat(feed: SyncFeed) -> None:
    feed.list_all(nodes=(node("bad", "{"),))
    feed.nodes.on_changed(node("bad", "{", heartbeat="1"))
    assert len(feed.events.asked) == 1
    feed.nodes.on_changed(node("bad", cards_annotation(published_card(0))))
    feed.nodes.on_changed(node("bad", "{"))
    assert len(feed.events.asked) == 2


def test_a_node_with_another_unit_is_reported(feed: SyncFeed) -> None:
    feed.list_all(nodes=(node("odd", cards_annotation(published_card(0), unit_mib=256)),))
    assert feed.events.asked == [("odd", EventReason.UNIT_MISMATCH)]
    assert feed.violations("unit_mismatch") == 1


def test_an_unreadable_observation_leaves_the_cards_alone(feed: SyncFeed) -> None:
    feed.list_all(nodes=(node("n", cards_annotation(published_card(0)), **{"vrampack.dev/observed": "[]"}),))
    assert feed.ledger.list_nodes()[0].free_units == 15
    assert feed.events.asked == [("n", EventReason.ANNOTATION_REJECTED)]


def test_nothing_is_kept_of_pods_that_are_gone(feed: SyncFeed) -> None:
    names = ("deleted", "missing from a list", "finished", "there")
    for name in names:
        feed.pods.on_changed(pod(name))
    feed.pods.on_deleted(pod("deleted"))
    feed.pods.on_changed(msgspec.structs.replace(pod("finished"), status=PodStatus(phase="Succeeded")))
    feed.list_all(pod("there"))
    assert [name for name in names if feed.rules.find_key(name) is not None] == ["there"]


def test_a_damaged_record_disturbs_no_other_pod(feed: SyncFeed) -> None:
    damaged = pod("damaged", bound="n", **{"vrampack.dev/allocation": "{"})
    fine = pod("fine", bound="n", **{"scheduler.framework.gpushare.allocation": '{"0":{"0":4}}'})
    feed.list_all(damaged, fine, nodes=(node("n", cards_annotation(published_card(0), published_card(1))),))
    assert [card.used_units for card in feed.ledger.list_nodes()[0].cards] == [8, 4]
    assert feed.events.asked == [("damaged", EventReason.ANNOTATION_REJECTED)]


def test_each_overcommitted_card_is_named(feed: SyncFeed) -> None:
    """16 units each on cards of 15."""
    both = [
        pod(f"p{number}", bound="n", **{"scheduler.framework.gpushare.allocation": text})
        for number, text in enumerate(('{"0":{"0":16}}', '{"0":{"1":16}}'))
    ]
    feed.list_all(*both, nodes=(node("n", cards_annotation(published_card(0), published_card(1))),))
    assert feed.events.asked == [("n", EventReason.OVERCOMMITTED)] * 2
    assert sorted(card for card in feed.events.cards if card is not None) == [0, 1]
    assert feed.violations("overcommitted") == 2


def test_a_pod_that_can_no_longer_be_decoded_keeps_holding_its_memory(feed: SyncFeed) -> None:
    feed.list_all(pod("p", bound="n"), nodes=(node("n", cards_annotation(published_card(0))),))
    feed.pods.on_list_started("expired")
    feed.pods.on_malformed(ObjectReference("default", "p", "p"), "labels: not an object")
    feed.pods.on_list_finished()
    assert feed.ledger.list_nodes()[0].used_units == 4
    assert feed.violations("object_malformed") == 1


def test_an_invalid_request_gets_one_event_with_field_and_fix(feed: SyncFeed) -> None:
    body = pod_manifest("odd", "4", uid="odd", namespace="default", labels={"aliyun.com/gpu-count": "none"})
    odd = read_object(body)
    feed.list_all(odd)
    feed.pods.on_changed(odd)
    assert feed.events.asked == [("odd", EventReason.REQUEST_NOT_VALID)]
    assert feed.violations("request_not_valid") == 1


def test_pods_without_gpu_memory_are_not_kept(feed: SyncFeed) -> None:
    feed.list_all(msgspec.convert({"metadata": {"name": "web", "uid": "web"}}, PodObject))
    assert list(feed.ledger.list_pods()) == []


def test_a_placeholder_is_not_counted_before_somebody_binds_it(feed: SyncFeed) -> None:
    manifest = pod_manifest("p", 4, scheduler=PLACEHOLDER_SCHEDULER, uid="p")
    feed.list_all(read_object(manifest))
    feed.pods.on_changed(read_object(manifest))
    assert list(feed.ledger.list_pods()) == []
    manifest["spec"]["nodeName"] = "n"
    feed.pods.on_changed(read_object(manifest))
    assert [pod.name for pod in feed.ledger.list_pods()] == ["p"]


def test_relists_are_counted_by_cause(feed: SyncFeed) -> None:
    feed.list_all()
    feed.pods.on_list_started("expired")
    assert feed.metrics.relists.labels("pods", "start")._value.get() == 1
    assert feed.metrics.relists.labels("pods", "expired")._value.get() == 1


def test_a_service_is_ready_when_its_nodes_are_summarized() -> None:
    freshness = Freshness(clock=lambda: 0.0, now=lambda: 0.0, stale_seconds=1)
    for resource in RESOURCES:
        freshness.record_activity(resource)
        freshness.mark_listed(resource)
    readiness = ReadinessCheck(freshness)
    readiness.mark_preparing()
    assert readiness.find_unready_reason() == "the nodes are being summarized"
    readiness.mark_prepared()
    assert not readiness.find_unready_reason()
