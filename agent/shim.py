"""What the page `/shim` says, and `vrampack shim status` reads: who holds what of the cards, process by process."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Literal, Protocol

import msgspec

from agent.limits.books import Books, ProcessUse, Tally
from agent.limits.kmod.nodes import State
from agent.pods import LocalPod
from cards.node import CardFacts

_MIB = 1 << 20


class Limiting(Protocol):
    """Who holds limits here: `enforcement.py`, or the agent of a host without Kubernetes."""

    @property
    def word(self) -> str: ...
    @property
    def books(self) -> Books | None: ...
    @property
    def module(self) -> State | None: ...
    def limits_of(self, pod_uid: str, container: str, /) -> Mapping[str, int] | None: ...


class ShownProcess(msgspec.Struct, frozen=True, rename="camel"):
    """One process; the pid is the node's."""

    pid: int
    held_bytes: int
    refused: int


class ShownContainer(msgspec.Struct, frozen=True, rename="camel"):
    """One container on one card. Names are empty where the pod, or its status, does not say them any more."""

    namespace: str
    pod: str
    uid: str
    container: str
    uuid: str
    gpu: int | None
    limit_bytes: int | None
    used_bytes: int
    peak_bytes: int
    refused: int
    processes: tuple[ShownProcess, ...]


class ShownModule(msgspec.Struct, frozen=True, rename="camel"):
    """The kernel module."""

    version: str
    is_attached: bool = msgspec.field(name="attached")
    driver_version: str
    """That it stands before."""
    layout: str
    uvm: str
    files: int
    """Open files of processes that it limits: as long as there are any the driver cannot be unloaded."""


class ShimStatus(msgspec.Struct, frozen=True, rename="camel"):
    """One node."""

    api_version: Literal["vrampack.dev/v1"] = "vrampack.dev/v1"
    kind: Literal["ShimStatus"] = "ShimStatus"
    node: str = ""
    enforcement: str = ""
    """Who holds limits here; without `kmod` and `preload` there is nothing else to say."""
    driver_version: str = ""
    connected: int = 0
    """Processes that have a line to the agent, those that hold nothing too; with `kmod` those that hold something."""
    containers: tuple[ShownContainer, ...] = ()
    module: ShownModule | None = None
    """Where limits hang on it and it is loaded."""


def status(
    node: str, enforcement: Limiting, *, driver_version: str, cards: Iterable[CardFacts], pods: Iterable[LocalPod]
) -> ShimStatus:
    """As it is now."""
    books = enforcement.books
    if books is None:
        return ShimStatus(node=node, enforcement=enforcement.word, driver_version=driver_version)
    return ShimStatus(
        node=node,
        enforcement=enforcement.word,
        driver_version=driver_version,
        connected=books.connections,
        containers=tuple(_containers(books, enforcement, _indices(cards), {pod.pod.uid: pod for pod in pods})),
        module=_module(enforcement.module),
    )


def _module(state: State | None) -> ShownModule | None:
    if state is None:
        return None
    return ShownModule(state.version, state.is_attached, state.driver_version, state.layout, state.uvm, state.files)


def _containers(
    books: Books, enforcement: Limiting, indices: Mapping[str, int], pods: Mapping[str, LocalPod]
) -> list[ShownContainer]:
    processes: dict[tuple[str, str, str], list[ProcessUse]] = {}
    for each in books.processes():
        processes.setdefault((each.pod_uid, each.container, each.uuid), []).append(each)
    found = []
    for key, tally in books.tallies().items():
        uid, name, uuid = key
        limit_mib = (enforcement.limits_of(uid, name) or {}).get(uuid)
        limit_bytes = None if limit_mib is None else limit_mib * _MIB
        place = _place(pods.get(uid), uid, name), (uuid, indices.get(uuid), limit_bytes)
        found.append(_shown(place, tally, processes.get(key, [])))
    return sorted(found, key=lambda each: (each.namespace, each.pod, each.uid, each.container, each.uuid))


def _place(pod: LocalPod | None, uid: str, name: str) -> tuple[str, str, str, str]:
    return (pod.pod.namespace, pod.pod.name, uid, name) if pod is not None else ("", "", uid, name)


def _shown(
    place: tuple[tuple[str, str, str, str], tuple[str, int | None, int | None]],
    tally: Tally,
    processes: Iterable[ProcessUse],
) -> ShownContainer:
    of, (uuid, gpu, limit_bytes) = place
    rows = tuple(ShownProcess(each.pid, each.held_bytes, each.refused) for each in processes)
    return ShownContainer(*of, uuid, gpu, limit_bytes, tally.used_bytes, tally.peak_bytes, tally.refused, rows)


def _indices(cards: Iterable[CardFacts]) -> dict[str, int]:
    return {card.uuid or "": card.index for card in cards}
