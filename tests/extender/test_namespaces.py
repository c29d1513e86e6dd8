"""Namespace label selectors: namespaces are watched while one is in force, and no labels are guessed for an unseen namespace."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from extender.app import Extender, ExtenderOptions
from extender.config_reloader import ConfigurationSource
from extender.metrics import ExtenderMetrics
from extender.rule_settings import RuleSettings
from extender.settings import load_settings
from extender.state.namespaces import NamespaceLabels, NamespaceSink, NamespaceWatcher
from extender.state.placement_change import apply_placement
from tests.extender.scheduler_harness import SchedulerHarness
from tests.fakes.api import FakeKubeApi
from tests.support.builders import UNIT_MIB, card_facts, ledger_pod
from vrampack.cards.node import NodeFacts
from vrampack.cards.profiles import PlacementSettings
from vrampack.config.errors import SettingsError
from vrampack.kube.api_caller import Resource
from vrampack.kube.errors import RefusedError
from vrampack.kube.objects import NamespaceObject, ObjectMeta

HEAD = "apiVersion: vrampack.dev/v1\nkind: ExtenderConfiguration\n"
BY_LABEL = HEAD + "rules: {models: [{users: {namespace_labels: {tier: dev}}, allow: [T4]}]}\n"
RULES = RuleSettings.model_validate({"models": [{"users": {"namespace_labels": {"tier": "dev"}}, "allow": ["T4"]}]})


def namespace(name: str, **labels: str) -> NamespaceObject:
    return NamespaceObject(ObjectMeta(name=name, labels=labels))


async def start_harness(*listed: NamespaceObject) -> tuple[SchedulerHarness, NamespaceSink]:
    """A T4 and an A100, of which pods of namespaces for development may use the first alone; one pod waits."""
    harness = SchedulerHarness({})
    harness.names = ["a100", "t4"]
    for name in harness.names:
        harness.put_node(NodeFacts(name, card_facts(16, model=name.upper()), unit_mib=UNIT_MIB))
    harness.add_pending_pod("waiting")
    sink = NamespaceSink(NamespaceLabels({"tier"}), harness.ledger, harness.metrics)
    before = harness.ledger.capacity_generation
    sink.on_page(listed)
    sink.on_list_finished()
    assert harness.ledger.capacity_generation == before  # a thousand namespaces, each a change of all nodes
    await apply_placement(harness.ledger, PlacementSettings(RULES.build_rules()), sink.labels)
    return harness, sink


async def test_rules_apply_to_pods_by_the_labels_of_their_namespace() -> None:
    harness, sink = await start_harness(namespace("default", tier="dev", other="x"), namespace("free"))
    assert harness.filter_names("new") == ["t4"]
    assert "card model not allowed by a rule" in await harness.bind("waiting", "a100")
    before = harness.ledger.capacity_generation
    sink.on_changed(namespace("default", tier="prod"))
    assert harness.ledger.capacity_generation > before  # waiting pods of it may fit now
    assert harness.filter_names("new") == ["a100", "t4"]
    assert await harness.bind("waiting", "a100") == ""
    before = harness.ledger.capacity_generation
    sink.on_changed(namespace("default", tier="prod", other="y"))
    assert harness.ledger.capacity_generation == before


@pytest.mark.parametrize("is_reload", [False, True], ids=["by its watch", "by a reload that reads labels again"])
async def test_relabelling_a_namespace_moves_the_cards_kept_for_its_nominees(*, is_reload: bool) -> None:
    """No node changed, and yet a nominee that may use only the T4 from now on keeps that card, and frees the other one."""
    harness, sink = await start_harness(namespace("default"), namespace("team"))
    cards = card_facts(16, 16, model="A100")
    harness.put_node(NodeFacts("n", (cards[0], replace(cards[1], model="T4")), unit_mib=UNIT_MIB))
    harness.ledger.update_pod(
        replace(ledger_pod("nominee", units=16, priority=10), namespace="team", nominated_node="n")
    )
    harness.add_pending_pod("other", 16)
    assert harness.choose_cards("other", "n", 16) == [1]
    if is_reload:
        labels = NamespaceLabels({"tier"})
        labels.put_labels("default", ())
        labels.put_labels("team", (("tier", "dev"),))
        await apply_placement(harness.ledger, harness.ledger.placement, labels)
    else:
        sink.on_changed(namespace("team", tier="dev"))
    assert harness.choose_cards("other", "n", 16) == [0]


async def test_verbs_are_not_ready_for_pods_of_unseen_namespaces() -> None:
    """A rule may apply to such a namespace."""
    harness, sink = await start_harness()
    harness.add_pending_pod("new")
    text = "not ready: namespace default has not been seen yet, but rules or profiles need its labels"
    verbs, body = harness.parts.verbs, harness.encode_call("new")
    assert json.loads(verbs.filter(body).body)["Error"] == text
    prioritized = verbs.prioritize(body)
    assert (prioritized.status, json.loads(prioritized.body)) == (503, {"error": text})
    assert await harness.bind("new", "t4") == f"{text}; nothing was bound"
    args = {"Pod": json.loads(body)["Pod"], "NodeNameToMetaVictims": {"t4": {"Pods": []}}}
    assert (await harness.parts.preemption.preempt(json.dumps(args).encode())).status == 503
    sink.on_page([namespace("default")])
    assert harness.filter_names("new") == ["a100", "t4"]
    sink.on_list_started("expired")
    sink.on_list_finished()
    assert json.loads(verbs.filter(body).body)["Error"] == text


class NamespaceApi(FakeKubeApi):
    """Lists one namespace, and watches without a word; can be told to refuse."""

    def __init__(self) -> None:
        super().__init__()
        self.lists = 0
        self.is_refusing = False
        self.watch_began, self.watch_ended = asyncio.Event(), asyncio.Event()

    async def list_page(self, resource: Resource, **_: object) -> bytes:
        assert resource == "namespaces"
        self.lists += 1
        if self.is_refusing:
            raise RefusedError(403, "Forbidden", "namespaces is forbidden")
        items = [namespace("default", tier="dev")]
        return msgspec.json.encode({"kind": "NamespaceList", "metadata": {"resourceVersion": "1"}, "items": items})

    @asynccontextmanager
    async def watch(self, *_: object, **__: object) -> AsyncIterator[SilentStream]:
        self.watch_began.set()
        try:
            yield SilentStream()
        finally:
            self.watch_ended.set()


class SilentStream:
    """Nothing comes."""

    def read_nowait(self, n: int = -1) -> bytes:  # noqa: ARG002 - the real one's shape
        return b""

    async def readany(self) -> bytes:
        await asyncio.Event().wait()
        return b""


async def test_namespaces_are_watched_while_a_selector_in_force_asks_for_them(tmp_path: Path) -> None:
    file, api = tmp_path / "extender.yaml", NamespaceApi()
    file.write_text(HEAD)
    service = Extender(
        ExtenderOptions(load_settings(file), "test", source=ConfigurationSource(file)), api, ExtenderMetrics("test")
    )
    reloader = service._config_reloader
    assert reloader is not None
    watcher = asyncio.create_task(service._namespaces.run())
    await asyncio.sleep(0)
    for text, generation, lists in (
        (HEAD + "policy: {default: spread}\n", 2, 0),
        (BY_LABEL, 3, 1),
        (BY_LABEL + "policy: {default: spread}\n", 4, 1),
        (HEAD, 5, 1),
        (BY_LABEL, 6, 2),
    ):
        assert api.watch_began.is_set() is (generation in (4, 5))
        file.with_suffix(".new").write_text(text)
        file.with_suffix(".new").rename(file)
        await reloader.reload_if_changed()
        assert (reloader.generation, api.lists) == (generation, lists)
        assert service._ledger.in_force.find_unready_reason("default") == ""
        asks = "namespace_labels" in text
        assert (service._ledger.in_force.find_unready_reason("other") != "") is asks
        if asks:
            await api.watch_began.wait()
        elif generation == 5:
            await api.watch_ended.wait()
            api.watch_began.clear()
    watcher.cancel()


async def test_namespaces_that_cannot_be_listed_raise_a_settings_error() -> None:
    api = NamespaceApi()
    watcher = NamespaceWatcher(api, SchedulerHarness({}).ledger, ExtenderMetrics("test"))
    running = asyncio.create_task(watcher.run())
    await asyncio.sleep(0)
    before = await watcher.watch_labels(["tier"], timeout_seconds=None)
    api.is_refusing = True
    with pytest.raises(SettingsError, match="namespaces were not listed within 0 s"):
        await watcher.watch_labels(["team"], timeout_seconds=0)
    assert await watcher.watch_labels(["tier"], timeout_seconds=0) is before
    assert not api.watch_ended.is_set()
    running.cancel()
