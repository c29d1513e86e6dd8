"""The file of a real process changes while it is called over HTTP: no call fails, and no pod is ranked by two generations.

`VRAMPACK_RELOADS` says how often it changes (2; `make soak` has 50), of which every third file is bad.
"""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path
from random import Random

import aiohttp
import pytest

from extender.wire.codec import GENERATION_HEADER
from tests.support.extender_process import ExtenderProcess, run_extender_process
from tests.support.manifest_builders import RESOURCE, cards_annotation, published_card, reference_env
from tests.support.node_manifests import gpu_node_manifest
from vrampack.simulator.apiserver import ApiServer

RELOADS = int(os.environ.get("VRAMPACK_RELOADS", "2"))
CALLS_EACH = 200
"""At least, between two changes of the file: 10,000 with fifty of them."""
NODES = 60
HEAD = "apiVersion: vrampack.dev/v1\nkind: ExtenderConfiguration\n"
PREFIX = "/gpushare-scheduler"
NAMES = [f"n{at:02}" for at in range(NODES)]


class LoadedExtender:
    """A process, its file, and what it answered."""

    def __init__(self, extender: ExtenderProcess, session: aiohttp.ClientSession, file: Path) -> None:
        self._extender = extender
        self._session = session
        self._file = file
        self._random = Random(7)
        self.calls = 0
        self.generations: set[int] = set()

    async def schedule_pod(self) -> None:
        """Filter and prioritize: every node passes whatever is in force."""
        name = f"pod-{self.calls}"
        container = {"name": "main", "resources": {"limits": {RESOURCE: "2"}}, "env": [reference_env("main")]}
        pod = {"metadata": {"name": name, "namespace": "default", "uid": name}, "spec": {"containers": [container]}}
        answers = []
        for verb in ("filter", "prioritize"):
            body = {"Pod": pod, "NodeNames": NAMES}
            async with self._session.post(f"{self._extender.verbs}{PREFIX}/{verb}", json=body) as reply:
                assert reply.status == 200
                answers.append((int(reply.headers[GENERATION_HEADER]), json.loads(await reply.read())))
        (filtered, passed), (ranked, scores) = answers
        assert (passed["Error"], passed["NodeNames"]) == ("", NAMES)
        assert filtered == ranked
        assert scores[0]["Score"] == 10
        self.calls += 1
        self.generations.add(filtered)

    async def read_figure(self, name: str) -> int:
        _, page = await self._extender.get(f"{self._extender.health}/metrics")
        return int(float(next(line for line in page.splitlines() if line.startswith(name)).rpartition(" ")[2]))

    async def change_file(self, number: int) -> None:
        """Calls go on until the process has read it."""
        is_bad = number % 3 == 2
        name = "vrampack_config_reload_failures_total" if is_bad else "vrampack_config_generation"
        before, calls = await self.read_figure(name), self.calls
        policy = "best" if is_bad else self._random.choice(["binpack", "spread", "node-binpack"])
        rules = f"rules: {{max_pods_per_card: {number + 5}, share_with: same-namespace}}\n"
        fresh = self._file.with_suffix(".new")
        fresh.write_text(f"{HEAD}policy: {{default: {policy}}}\n{rules}")
        fresh.rename(self._file)
        while await self.read_figure(name) == before or self.calls < calls + CALLS_EACH:
            for _ in range(20):
                await self.schedule_pod()
        await self.schedule_pod()  # by what is in force now


@pytest.mark.timeout(60 + 30 * RELOADS)
async def test_no_call_fails_and_no_pod_is_ranked_by_two_generations(tmp_path: Path) -> None:
    file = tmp_path / "extender.yaml"
    file.write_text(HEAD)
    async with ApiServer() as api:
        for name in NAMES:
            cards = cards_annotation(*(published_card(at, uuid=f"{name}-{at}") for at in range(4)))
            api.create(gpu_node_manifest(name, cards=cards, allocatable={}, annotations={}, labels={}))
        async with (
            run_extender_process(tmp_path, api.url, "--config", str(file)) as extender,
            aiohttp.ClientSession() as session,
        ):
            await extender.wait_until_ready()
            loaded = LoadedExtender(extender, session, file)
            async with asyncio.timeout(30 + 30 * RELOADS):
                for number in range(RELOADS):
                    await loaded.change_file(number)
            good = RELOADS - RELOADS // 3
            assert await loaded.read_figure("vrampack_config_generation") == 1 + good
            assert loaded.calls >= CALLS_EACH * RELOADS
            assert max(loaded.generations) == 1 + good
