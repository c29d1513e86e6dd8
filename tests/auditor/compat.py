"""The part of I2 for older readers: the gpushare value and the `ALIYUN_COM_GPU_MEM_*` set agree with the record."""

from collections.abc import Iterator

from tests.auditor.cards import AuditedCard
from tests.auditor.pods import AuditedPod
from tests.auditor.raw import decimal
from tests.auditor.records import AuditedRecord, units_by_container
from tests.auditor.terms import ALLOCATION_V2, V1


def compat_faults(pod: AuditedPod, record: AuditedRecord, cards: list[AuditedCard], *, legacy: bool) -> Iterator[str]:
    """What older tools would read differently. `cards` are the node's cards that the record names."""
    yield from _gpushare_value(pod, record)
    lowest = min(cards, key=lambda card: card.index)
    at_bind = {held.uuid: held.of for held in record.cards}
    want = {
        "POD": str(sum(held.units for held in record.cards)),
        "DEV": str(at_bind.get(lowest.uuid) or lowest.units),
        # With several cards there is no one index, and a reader that finds none falls back to the gpushare value.
        "IDX": str(lowest.index) if len(cards) == 1 else None,
    }
    for key, value in want.items():
        if pod.notes.get(V1 + key) != value:
            yield f"{V1}{key} is {pod.notes.get(V1 + key)!r}, the record gives {value!r}"
    # Where another plugin runs, that plugin sets the flag.
    if pod.notes.get(f"{V1}ASSIGNED") not in ({"true", "false"} if legacy else {"true"}):
        yield f"{V1}ASSIGNED is {pod.notes.get(f'{V1}ASSIGNED')!r}"
    if not decimal(pod.notes.get(f"{V1}ASSUME_TIME")):
        yield f"{V1}ASSUME_TIME is {pod.notes.get(f'{V1}ASSUME_TIME')!r}, not Unix nanoseconds"


def _gpushare_value(pod: AuditedPod, record: AuditedRecord) -> Iterator[str]:
    if ALLOCATION_V2 not in pod.notes:
        yield f"{ALLOCATION_V2} is missing"
        return
    try:
        shares = units_by_container(pod.notes[ALLOCATION_V2])
    except ValueError as error:
        yield f"{ALLOCATION_V2} cannot be read: {error}"
        return
    for held in record.cards:
        total = sum(cards.get(held.index, 0) for cards in shares.values())
        if total != held.units:
            yield f"{ALLOCATION_V2} gives card {held.index} {total} units, the record {held.units}"
            return
    if shares != (want := _expected(pod, record)):
        yield f"{ALLOCATION_V2} says {shares}, the record comes to {want}"


def _expected(pod: AuditedPod, record: AuditedRecord) -> dict[str, dict[int, int]]:
    """Each plain container's own units; what init containers or a whole card add goes to the lowest asking one."""
    asking = [index for index, name in enumerate(pod.ask.order) if name in pod.ask.own]
    shares = {
        index: {held.index: pod.ask.own[pod.ask.order[index]] // pod.ask.cards for held in record.cards}
        for index in asking
    }
    lowest = shares.setdefault(min(asking, default=0), {})
    for held in record.cards:
        given = sum(cards.get(held.index, 0) for cards in shares.values())
        lowest[held.index] = lowest.get(held.index, 0) + held.units - given
    return {str(index): cards for index, cards in shares.items()}
