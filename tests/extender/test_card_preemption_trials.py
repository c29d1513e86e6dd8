"""Preemption by card beside a scheduler, kubelets, lesser pods and deaths, all as a seed says: no victim dies in vain, and it ends.

`VRAMPACK_PREEMPTION_SEEDS` says how many seeds (2), `VRAMPACK_SEED` the first of them.
"""

from __future__ import annotations

import json
import os
from random import Random

import pytest

from tests.extender.card_preemption_bench import CardPreemptionBench, LeasedApi, a_node, a_pod
from vrampack.kube.errors import RefusedError
from vrampack.simulator.apiserver import ApiServer

FIRST = int(os.environ.get("VRAMPACK_SEED", "1"))
SEEDS = range(FIRST, FIRST + int(os.environ.get("VRAMPACK_PREEMPTION_SEEDS", "2")))
NODES = ("n", "m", "o")
STEPS = 150
"""Seconds with events, before those in which everything comes to rest."""
IN_VAIN_SECONDS = 60
URGENT = 10
"""The highest priority: from others a pod of a higher one may take the card."""
NO_BUDGET = RefusedError(429, "TooManyRequests", "Cannot evict pod as it would violate the pod's disruption budget.")


class World:
    """What there is besides the extender. A step takes a second."""

    def __init__(self, server: ApiServer, api: LeasedApi, random: Random) -> None:
        self.server, self.api, self.random = server, api, random
        self.now = 0.0
        self.made = 0
        self.bench = self._start_process()
        self.waiting_for_bind: dict[str, tuple[str, float | None]] = {}
        """By victim, its beneficiary, and when the victim was gone."""
        self.in_vain: list[str] = []

    async def step(self, *, is_busy: bool) -> None:
        if is_busy:
            self._change_something()
        await self._schedule_pods()
        self._end_pods()
        self.bench.now = self.now
        await self.bench.pass_time(1)
        self.now = self.bench.now
        self._judge_victims()

    def _start_process(self) -> CardPreemptionBench:
        bench = CardPreemptionBench(
            self.server,
            self.api,
            by_card="act",
            max_evictions_per_hour=10_000,
            max_evictions_per_namespace_per_hour=10_000,
        )
        bench.now = self.now
        return bench

    def _change_something(self) -> None:
        match self.random.choices(("lesser", "urgent", "done", "death", "budget", "nothing"), (6, 1, 2, 1, 1, 6))[0]:
            case "lesser":
                self._make_pod(self.random.randint(1, 3), self.random.randint(1, 6))
            case "urgent":
                self._make_pod(URGENT, self.random.randint(5, 8))
            case "done":
                bound = [pod for pod in self.server.list_pods() if "nodeName" in pod["spec"]]
                if bound:
                    name = self.random.choice(bound)["metadata"]["name"]
                    self.server.delete("pods", name, grace_seconds=0)
            case "death":
                self.bench = self._start_process()
            case "budget":
                names = [pod["metadata"]["name"] for pod in self.server.list_pods()]
                chosen = self.random.sample(names, min(2, len(names)))
                self.api.refusals = dict.fromkeys(chosen, NO_BUDGET)

    def _make_pod(self, priority: int, units: int) -> None:
        if sum("nodeName" not in pod["spec"] for pod in self.server.list_pods()) < 12:
            self.made += 1
            born = f"2026-01-01T00:{self.made // 60:02}:{self.made % 60:02}Z"
            self.server.restore(a_pod(f"p{self.made}", units, priority=priority, creationTimestamp=born))
            self.bench.see_changes()

    async def _schedule_pods(self) -> None:
        """Each waiting pod once, in any order: the scheduler may try a lesser one first."""
        waiting = [pod["metadata"]["name"] for pod in self.server.list_pods() if "nodeName" not in pod["spec"]]
        for name in self.random.sample(waiting, len(waiting)):
            fits = self.bench.filter_pod(name)
            pod = self.server.get("pods", name)
            nominated = pod["status"].get("nominatedNodeName")
            if fits:
                node = nominated if nominated in fits else self.random.choice(fits)
                body = {"PodName": name, "PodNamespace": "default", "PodUID": pod["metadata"]["uid"], "Node": node}
                await self.bench.parts.verbs.bind(json.dumps(body).encode())
                self.bench.see_changes()
            elif nominated and self.random.random() < 0.3:
                self.server.patch("pods", name, {"status": {"nominatedNodeName": None}}, is_status=True)
                self.bench.see_changes()

    def _end_pods(self) -> None:
        for pod in self.server.list_pods():
            if "deletionTimestamp" in pod["metadata"] and self.random.random() < 0.3:
                self.server.delete("pods", pod["metadata"]["name"], grace_seconds=0)
        self.bench.see_changes()

    def _judge_victims(self) -> None:
        for victim, reason, text in self.bench.events.told:
            if reason == "GPUMemoryPreempted":
                self.waiting_for_bind.setdefault(victim, (text.split("default/")[1].split()[0], None))
        self.bench.events.told.clear()
        pods = {pod["metadata"]["name"]: pod for pod in self.server.list_pods()}
        for victim, (name, gone_at) in list(self.waiting_for_bind.items()):
            if name not in pods or "nodeName" in pods[name]["spec"]:
                del self.waiting_for_bind[victim]
            elif victim not in pods and gone_at is None:
                self.waiting_for_bind[victim] = (name, self.now)
            elif gone_at is not None and self.now - gone_at > IN_VAIN_SECONDS:
                if pods[name]["spec"]["priority"] == URGENT:
                    self.in_vain.append(f"{victim} for {name}")
                del self.waiting_for_bind[victim]


@pytest.mark.parametrize("seed", SEEDS)
async def test_no_victim_dies_in_vain_and_evictions_end(seed: int) -> None:
    async with ApiServer() as server:
        for name in NODES:
            server.restore(a_node(name))
        api = LeasedApi(server.url)
        world = World(server, api, Random(seed))
        try:
            for _ in range(STEPS):
                await world.step(is_busy=True)
            for _ in range(IN_VAIN_SECONDS):
                await world.step(is_busy=False)
            evicted = len(api.evicted)
            for _ in range(IN_VAIN_SECONDS):
                await world.step(is_busy=False)
        finally:
            await api.close()
    assert world.in_vain == []
    assert len(api.evicted) == evicted
