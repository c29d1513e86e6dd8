"""How much a container may use, as the hook is told: by its pod's record, or not at all."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import pytest

from agent.enforcement import Enforcement
from agent.nvml.driver import Gpu
from agent.pods import LocalPod
from agent.settings import AgentConfiguration
from cards.node import CardFacts, Share
from cards.pod import Pod
from cards.records import Record, Unreadable
from tests.agent.drivers import ScriptedDriver, a_gpu


@dataclass(frozen=True)
class Found:
    """One V100 of 15 units."""

    cards: tuple[CardFacts, ...] = (CardFacts(0, 15, 16130, "GPU-0"),)
    gpus: Mapping[str, Gpu] = field(default_factory=lambda: {"GPU-0": a_gpu()})
    driver_version: str = "580.95.05"


FOUND = Found()
SETTINGS = AgentConfiguration(apiVersion="vrampack.dev/v1", kind="AgentConfiguration")
OURS = {
    "vrampack.dev/allocation": '{"v":1,"cards":[{"uuid":"GPU-0","index":0,"units":4,"whole":false}],'
    '"containers":{"main":[{"uuid":"GPU-0","units":4,"mib":4301}]}}',
    "visible-devices.vrampack.dev/main": "GPU-0",
    "limit-mib.vrampack.dev/main": "4301",
}

LIMITS: dict[str, tuple[Mapping[str, str], Record | Unreadable | None, Mapping[str, int] | None]] = {
    "its record says": (OURS, Record("vrampack", (Share(4, "GPU-0", 0),)), {"GPU-0": 4301}),
    "a previous plugin's has none": ({}, Record("gpushare-v2", (Share(4, index=0),)), {}),
    "no record, no start": ({}, None, None),
    "a damaged one, no start": ({}, Unreadable("vrampack.dev/allocation", "not JSON"), None),
}


@pytest.mark.parametrize(("annotations", "record", "want"), LIMITS.values(), ids=LIMITS)
def test_a_container_may_use_what_its_record_says(
    annotations: Mapping[str, str], record: Record | Unreadable | None, want: Mapping[str, int] | None
) -> None:
    pod = LocalPod(Pod("uid", "ml", "a", record=record), annotations, {}, is_static=False, is_controlled=True)
    enforcement = Enforcement(SETTINGS, ScriptedDriver(), found=FOUND, pod_of={"uid": pod}.get)
    assert enforcement.limits_of("uid", "main") == want


def test_a_stranger_may_use_nothing() -> None:
    assert Enforcement(SETTINGS, ScriptedDriver(), found=FOUND, pod_of=lambda _: None).limits_of("uid", "main") is None
