"""What the page `/shim` says (`shown.py` has its words): who holds what of the cards, process by process."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol

from vrampack.agent.limits.books import Books, ProcessUse, Tally
from vrampack.agent.limits.kmod.nodes import State
from vrampack.agent.localpod import LocalPod
from vrampack.agent.shown import ShimStatus, ShownContainer, ShownModule, ShownProcess
from vrampack.cards.node import CardFacts

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
