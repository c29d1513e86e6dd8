"""What every process of every container holds of every card. No file, no network, no clock, no await.

    HELLO   accepted as it is, even above the limit: the process holds it already
    HOLD    more: only up to the limit of the container on that card, over all its processes; less: always
    GIVE    less, and never more
    ended   all of it is uncharged

A process may name one card in two ways: before its library has learnt the card's minor, and after. The two figures are
separate, so each belongs to a `CardPart`, and a card's figure is their sum.

Figures are absolute, so a repeated message changes nothing. The limit comes with every question: it may have changed, even
to less than what is held; then nothing more is charged until enough was uncharged.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from vrampack.agent.limits.accounting import UsageTotals
from vrampack.agent.limits.cgroups import CgroupOwner


@dataclass(frozen=True, slots=True, order=True)
class ProcessKey:
    """A process. A pid may be reused; together with the start time it is unique."""

    pid: int
    started_ticks: int
    """The 22nd field of /proc/PID/stat."""


CardPart: TypeAlias = tuple[str, int]
"""A card's uuid, and the minor by which the process names it."""
ContainerCard: TypeAlias = tuple[CgroupOwner, str]
"""A container and a card's uuid."""
RecordHolding: TypeAlias = Callable[[ProcessKey, CgroupOwner, str, int], bool]
"""Stores how many bytes of a card a process of a container holds. Returns whether that was possible."""


@dataclass(slots=True)
class _ProcessHoldings:
    """One process."""

    owner: CgroupOwner
    parts: dict[CardPart, int] = field(default_factory=dict)
    """Bytes; never 0."""
    refused: Counter[str] = field(default_factory=Counter)

    def held_bytes(self, uuid: str) -> int:
        return sum(part_bytes for (card, _), part_bytes in self.parts.items() if card == uuid)


@dataclass(frozen=True, slots=True)
class ProcessHolding:
    """One process on one card, for people."""

    process: ProcessKey
    owner: CgroupOwner
    uuid: str
    held_bytes: int
    refused: int


class UsageLedger:
    """What all processes of one node hold. `record_holding` is called before anything is charged."""

    def __init__(self, record_holding: RecordHolding) -> None:
        self._record_holding = record_holding
        self._holdings: dict[ProcessKey, _ProcessHoldings] = {}
        self._process_counts: Counter[str] = Counter()
        """By pod; kept so that the end of a process costs the same however many there are."""
        self._used: dict[ContainerCard, int] = {}
        self._peak: dict[ContainerCard, int] = {}
        self._refused: Counter[ContainerCard] = Counter()
        self._ended_pods: set[str] = set()
        """Pods that are gone but have processes left."""

    def set_holdings(self, process: ProcessKey, owner: CgroupOwner, parts: Mapping[CardPart, int]) -> None:
        """Set all that this process holds, in bytes, without checking a limit: what is not in `parts` is no longer held."""
        page = self._holdings.get(process)
        if page is not None and page.owner != owner:  # it was moved to another cgroup
            self.remove_process(process)
        if process not in self._holdings:
            self._holdings[process] = _ProcessHoldings(owner)
            self._process_counts[owner.pod_uid] += 1
        page = self._holdings[process]
        for part in sorted({*page.parts, *parts}):
            self._set_part(process, page, part, parts.get(part, 0))

    def try_charge(self, process: ProcessKey, part: CardPart, wanted_bytes: int, *, limit_bytes: int) -> bool:
        """Let it hold `wanted_bytes` if the container then stays within `limit_bytes` of the card; else change nothing."""
        page, (uuid, _) = self._holdings[process], part
        more_bytes = wanted_bytes - page.parts.get(part, 0)
        if not self.has_room(process, part, wanted_bytes, limit_bytes=limit_bytes):
            return self._refuse(page, uuid)
        if not self._record_holding(process, page.owner, uuid, page.held_bytes(uuid) + more_bytes) and more_bytes > 0:
            return self._refuse(page, uuid)  # an unrecorded charge could be given twice after a restart
        self._count_part(page, part, wanted_bytes)
        return True

    def has_room(self, process: ProcessKey, part: CardPart, wanted_bytes: int, *, limit_bytes: int) -> bool:
        """Whether the limit leaves room for it now; always true for no more than it holds."""
        page = self._holdings[process]
        more_bytes = wanted_bytes - page.parts.get(part, 0)
        return more_bytes <= 0 or self.get_used_bytes(page.owner, part[0]) + more_bytes <= limit_bytes

    def uncharge(self, process: ProcessKey, part: CardPart, left_bytes: int) -> None:
        """It now holds only `left_bytes`; a figure that is not less than before changes nothing."""
        page = self._holdings[process]
        if left_bytes < page.parts.get(part, 0):
            self._set_part(process, page, part, left_bytes)

    def remove_process(self, process: ProcessKey) -> None:
        """Uncharge everything that it held."""
        page = self._holdings.pop(process, None)
        if page is None:
            return
        for part in list(page.parts):
            self._set_part(process, page, part, 0)
        self._process_counts[page.owner.pod_uid] -= 1
        if page.owner.pod_uid in self._ended_pods:
            self.forget_pod(page.owner.pod_uid)

    def forget_pod(self, pod_uid: str) -> None:
        """The pod is gone: forget its peaks and refusals when its last process ends."""
        if self._process_counts[pod_uid]:
            self._ended_pods.add(pod_uid)
            return
        self._ended_pods.discard(pod_uid)
        del self._process_counts[pod_uid]
        for counted in (self._peak, self._refused):
            for place in [place for place in counted if place[0].pod_uid == pod_uid]:
                del counted[place]

    def has_process(self, process: ProcessKey) -> bool:
        return process in self._holdings

    def get_used_bytes(self, owner: CgroupOwner, uuid: str) -> int:
        """The bytes that all processes of the container hold on that card."""
        return self._used.get((owner, uuid), 0)

    def list_usage_totals(self) -> dict[ContainerCard, UsageTotals]:
        """Totals of every container and card with use, a peak or refusals."""
        places = {*self._used, *self._peak, *self._refused}
        return {
            place: UsageTotals(self._used.get(place, 0), self._peak.get(place, 0), self._refused[place])
            for place in places
        }

    def list_holdings(self) -> Iterator[ProcessHolding]:
        """What every process holds, in stable order; a process without a card is left out."""
        for process, page in sorted(self._holdings.items()):
            for uuid in sorted({*(card for card, _ in page.parts), *page.refused}):
                yield ProcessHolding(process, page.owner, uuid, page.held_bytes(uuid), page.refused[uuid])

    def _refuse(self, holdings: _ProcessHoldings, uuid: str) -> bool:
        holdings.refused[uuid] += 1
        self._refused[holdings.owner, uuid] += 1
        return False

    def _set_part(self, process: ProcessKey, holdings: _ProcessHoldings, part: CardPart, part_bytes: int) -> None:
        """Set a figure that is a fact, even if it cannot be recorded."""
        self._count_part(holdings, part, part_bytes)
        self._record_holding(process, holdings.owner, part[0], holdings.held_bytes(part[0]))

    def _count_part(self, holdings: _ProcessHoldings, part: CardPart, part_bytes: int) -> None:
        place = holdings.owner, part[0]
        used_bytes = self._used.pop(place, 0) - holdings.parts.pop(part, 0) + part_bytes
        if part_bytes:
            holdings.parts[part] = part_bytes
        if used_bytes:
            self._used[place] = used_bytes
        if used_bytes > self._peak.get(place, 0):
            self._peak[place] = used_bytes
