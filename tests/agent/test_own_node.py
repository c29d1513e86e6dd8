"""What the Node object says about us: written only when it should change, and only once."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.fakes.exchanges import Exchange
from tests.fakes.proxy import FaultProxy
from vrampack.agent.cluster import own_node
from vrampack.agent.cluster.own_node import OwnNode
from vrampack.backoff import Backoff
from vrampack.kube.client import Api
from vrampack.kube.credentials import load_credentials
from vrampack.kube.objects import LocalNodeObject
from vrampack.kube.reflector import Reflector
from vrampack.simulator.apiserver import ApiServer
from vrampack.simulator.kubeconfig import write_kubeconfig

NODE = "gpu-0"
CARDS = ("annotations", "vrampack.dev/cards")
OBSERVED = ("annotations", "vrampack.dev/observed")
LABEL = ("labels", "vrampack.dev/enforcement")


class OwnNodeHarness:
    """A node's object, its writer, and a proxy between them."""

    def __init__(self, api: ApiServer, proxy: FaultProxy) -> None:
        self.api = api
        self.proxy = proxy
        self.writes = 0
        self.own: OwnNode

    def count(self) -> None:
        self.writes += 1

    def metadata(self) -> Mapping[str, Any]:
        found: Mapping[str, Any] = self.api.get("nodes", NODE)["metadata"]
        return found

    def says(self, entry: tuple[str, str]) -> str | None:
        field, key = entry
        found: str | None = self.metadata().get(field, {}).get(key)
        return found

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(10):
            while not condition():  # noqa: ASYNC110 - the store sends no signal
                await asyncio.sleep(0.005)

    async def settled(self, entry: tuple[str, str], value: str | None) -> None:
        """Wait until it is written, and the watch has shown the write."""
        await self.until(lambda: self.says(entry) == value and self.own.get_current(*entry) == value)


@asynccontextmanager
async def open_own_node(folder: Path) -> AsyncIterator[OwnNodeHarness]:
    async with ApiServer() as api, FaultProxy(int(api.url.rpartition(":")[2])) as proxy:
        api.create({"apiVersion": "v1", "kind": "Node", "metadata": {"name": NODE, "labels": {"zone": "a"}}})
        client = Api(await load_credentials(write_kubeconfig(folder, proxy.url)))
        desk = OwnNodeHarness(api, proxy)
        desk.own = OwnNode(client, NODE, on_write=desk.count, on_resources=lambda _, __: None)
        watch = Reflector(client, "nodes", LocalNodeObject, desk.own, field_selector=f"metadata.name={NODE}")
        tasks = [asyncio.create_task(desk.own.run()), asyncio.create_task(watch.run())]
        try:
            await desk.own.wait_for_sync()
            yield desk
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
            await client.close()


def patches(desk: OwnNodeHarness) -> list[Exchange]:
    return desk.proxy.matching("PATCH", rf"/nodes/{NODE}$")


async def test_several_keys_are_written_in_one_patch_and_other_keys_stay(tmp_path: Path) -> None:
    async with open_own_node(tmp_path) as desk:
        desk.own.set_desired({CARDS: "a", LABEL: "watch"})
        await desk.settled(LABEL, "watch")
        assert (desk.says(CARDS), desk.writes, len(patches(desk))) == ("a", 1, 1)
        assert json.loads(patches(desk)[0].body) == {
            "metadata": {"annotations": {CARDS[1]: "a"}, "labels": {LABEL[1]: "watch"}}
        }
        assert desk.says(("labels", "zone")) == "a"


async def test_an_unchanged_value_is_not_written(tmp_path: Path) -> None:
    """Each write of a node wakes every pending pod of the cluster."""
    async with open_own_node(tmp_path) as desk:
        desk.own.set_desired({CARDS: "a"})
        await desk.settled(CARDS, "a")
        for _ in range(3):
            desk.own.set_desired({CARDS: "a"})
            desk.api.patch("nodes", NODE, {"metadata": {"labels": {"zone": "b"}}})
        desk.own.set_desired({OBSERVED: "end"})
        await desk.settled(OBSERVED, "end")
        assert desk.writes == 2
        assert [json.loads(each.body)["metadata"]["annotations"] for each in patches(desk)] == [
            {CARDS[1]: "a"},
            {OBSERVED[1]: "end"},
        ]


async def test_stale_watch_event_is_not_taken_for_a_change(tmp_path: Path) -> None:
    """Between the write and its echo the watch may show other changes, still with the old value."""
    async with open_own_node(tmp_path) as desk:
        old = msgspec.json.decode(json.dumps(desk.api.get("nodes", NODE)), type=LocalNodeObject)
        desk.proxy.freeze_watches()
        desk.own.set_desired({CARDS: "a"})
        await desk.until(lambda: desk.writes == 1)
        desk.own.on_changed(old)
        desk.own.set_desired({OBSERVED: "end"})
        desk.proxy.thaw_watches()
        await desk.settled(OBSERVED, "end")
        assert [list(json.loads(each.body)["metadata"]["annotations"]) for each in patches(desk)] == [
            [CARDS[1]],
            [OBSERVED[1]],
        ]


@pytest.mark.parametrize("status", [409, 429, 500, 503, 403])
async def test_a_refused_write_is_tried_again(tmp_path: Path, status: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(own_node, "BACKOFF", Backoff(0.01, 0.02))
    async with open_own_node(tmp_path) as desk:
        desk.proxy.when("PATCH", r"/nodes/").answer(status, times=3)
        desk.own.set_desired({CARDS: "a"})
        await desk.settled(CARDS, "a")
        assert desk.writes == 1
        assert len(patches(desk)) == 4


async def test_lost_reply_does_not_cause_a_second_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The write happened; the watch shows it, and nothing is left to write."""
    monkeypatch.setattr(own_node, "BACKOFF", Backoff(0.2, 0.2))
    async with open_own_node(tmp_path) as desk:
        desk.proxy.when("PATCH", r"/nodes/").cut_after_write(times=1)
        desk.own.set_desired({CARDS: "a"})
        await desk.settled(CARDS, "a")
        desk.own.set_desired({OBSERVED: "end"})
        await desk.settled(OBSERVED, "end")
        assert [list(json.loads(each.body)["metadata"]["annotations"]) for each in patches(desk)] == [
            [CARDS[1]],
            [OBSERVED[1]],
        ]


async def test_a_foreign_change_is_repaired_once_and_at_once(tmp_path: Path) -> None:
    async with open_own_node(tmp_path) as desk:
        desk.own.set_desired({CARDS: "a"})
        await desk.settled(CARDS, "a")
        for number in range(3):
            desk.api.patch("nodes", NODE, {"metadata": {"annotations": {CARDS[1]: f"forged {number}"}}})
            async with asyncio.timeout(2):  # far below the time that a missing echo is waited for
                await desk.until(lambda: desk.says(CARDS) == "a")
            await desk.settled(CARDS, "a")
        assert desk.says(CARDS) == "a"
        assert len(patches(desk)) == 4


async def test_write_is_complete_once_the_watch_shows_it_even_before_its_reply(tmp_path: Path) -> None:
    """A later change is somebody else's, not a late echo."""
    async with open_own_node(tmp_path) as desk:
        reply = desk.proxy.when("PATCH", r"/nodes/").hold_reply(times=1)
        desk.own.set_desired({CARDS: "a"})
        await desk.settled(CARDS, "a")
        reply.release()
        await desk.until(lambda: desk.writes == 1)
        desk.api.patch("nodes", NODE, {"metadata": {"annotations": {CARDS[1]: "forged"}}})
        async with asyncio.timeout(2):
            await desk.until(lambda: desk.says(CARDS) == "a")


async def test_an_unwanted_key_is_removed_once(tmp_path: Path) -> None:
    async with open_own_node(tmp_path) as desk:
        desk.own.set_desired({OBSERVED: "x"})
        await desk.settled(OBSERVED, "x")
        desk.own.set_desired({OBSERVED: None})
        await desk.settled(OBSERVED, None)
        assert OBSERVED[1] not in desk.metadata().get("annotations", {})
        desk.own.set_desired({OBSERVED: None, LABEL: "watch"})
        await desk.settled(LABEL, "watch")
        assert desk.writes == 3


async def test_a_node_that_joins_again_is_written_again(tmp_path: Path) -> None:
    async with open_own_node(tmp_path) as desk:
        desk.own.set_desired({CARDS: "a", LABEL: "watch"})
        await desk.settled(CARDS, "a")
        desk.api.delete("nodes", NODE)
        desk.api.create({"apiVersion": "v1", "kind": "Node", "metadata": {"name": NODE}})
        async with asyncio.timeout(2):
            await desk.until(lambda: desk.says(CARDS) == "a" and desk.says(LABEL) == "watch")
        assert len(patches(desk)) == 2
