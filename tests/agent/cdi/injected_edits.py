"""What a container gets by CDI: its spec, as the runtime reads it, and what `Allocate` answered."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.agent.agent_harness import AgentHarness
from tests.fakes.cdi_runtime import CdiRuntime, Edits
from tests.fakes.kubelet.pods import KubeletPod
from tests.fakes.kubelet.scripted_plugin import MEMORY
from tests.fakes.kubelet.starting import StartedContainer


async def resolve(runtime: CdiRuntime, started: StartedContainer) -> Edits:
    """The edits that the runtime makes in the container that kubelet has started."""
    (name,) = started.cdi_devices
    found = await runtime.resolve(name)
    assert found is not None, name
    return found


def env_of(edits: Edits) -> Mapping[str, str]:
    return dict(each.split("=", 1) for each in edits["env"])


def cards_of(edits: Edits) -> list[str]:
    """Nodes of cards, without those that every container with any card has."""
    paths = [node["path"] for node in edits["deviceNodes"]]
    return sorted(path for path in paths if path.removeprefix("/dev/nvidia").isdecimal())


def list_specs(world: AgentHarness) -> list[Path]:
    return sorted(world.cdi_folder.glob("vrampack-*"))


def answers_of(world: AgentHarness, pod: KubeletPod, container: str = "main") -> Any:  # noqa: ANN401 - a message of gRPC
    return world.kubelet.life.books.held_by(pod.uid, container)[MEMORY].answer
