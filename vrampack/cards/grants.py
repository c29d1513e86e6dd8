"""What one container may see and use, according to its pod's annotations: what the node's agent enforces.

The container's environment comes from `visible-devices` and `limit-mib`, the ledger counts by the allocation.
A container starts only if the three agree.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from vrampack.cards import well_known
from vrampack.cards.records import RecordError, load_json, read_int
from vrampack.cards.request import PodRequest
from vrampack.cards.units import MAX_UNITS

MAX_LIMIT_MIB = 2**30


@dataclass(frozen=True, slots=True)
class Grant:
    """One container's own share."""

    units: Mapping[str, int]
    """Units by uuid of the card."""
    limits_mib: Mapping[str, int]
    """MiB that it may use, by uuid of the card."""


def read_grant(annotations: Mapping[str, str], container: str) -> Grant:
    """The grant of this container. Raises `RecordError` naming the annotation that is missing, damaged or differs."""
    shares = _shares(annotations, container)
    grant = Grant({uuid: units for uuid, units, _ in shares}, {uuid: mib for uuid, _, mib in shares if mib is not None})
    if len(grant.units) != len(shares):
        raise RecordError(f"{well_known.ALLOCATION}: containers.{container} names a card twice")
    visible = well_known.VISIBLE_DEVICES_PREFIX + container
    _expect(annotations, visible, ",".join(grant.units), strip=f"{well_known.CDI_KIND}=")
    if grant.limits_mib:
        _expect(annotations, well_known.LIMIT_MIB_PREFIX + container, str(min(grant.limits_mib.values())))
    return grant


def read_pod_limits(annotations: Mapping[str, str], pod_request: PodRequest) -> dict[str, int]:
    """MiB by uuid that containers of the pod may use at the same time: the main ones, or an init container if that is more.

    Raises `RecordError` as `read_grant` does.
    """
    together: Counter[str] = Counter()
    most: dict[str, int] = {}
    for container in pod_request.containers:
        limits = read_grant(annotations, container.name).limits_mib
        if container.kind == "init":
            for uuid, mib in limits.items():
                most[uuid] = max(most.get(uuid, 0), mib + together[uuid])
        else:
            together.update(limits)
    return {uuid: max(together[uuid], most.get(uuid, 0)) for uuid in {*together, *most}}


def _shares(annotations: Mapping[str, str], container: str) -> list[tuple[str, int, int | None]]:
    text = annotations.get(well_known.ALLOCATION)
    if text is None:
        raise RecordError(f"{well_known.ALLOCATION} is missing")
    value = load_json(text)
    containers = value.get("containers") if isinstance(value, dict) else None
    shares = containers.get(container) if isinstance(containers, dict) else None
    if not isinstance(shares, list) or not shares:
        raise RecordError(f"{well_known.ALLOCATION}: containers.{container} is missing")
    return [_share(share, f"{well_known.ALLOCATION}: containers.{container}[{at}]") for at, share in enumerate(shares)]


def _share(value: object, path: str) -> tuple[str, int, int | None]:
    if not isinstance(value, dict):
        raise RecordError(f"{path}: not an object")
    uuid, mib = value.get("uuid"), value.get("mib")
    if not (isinstance(uuid, str) and uuid):
        raise RecordError(f"{path}.uuid: not a text")
    units = read_int(value.get("units"), f"{path}.units", low=0, high=MAX_UNITS)
    limit = None if mib is None else read_int(mib, f"{path}.mib", low=0, high=MAX_LIMIT_MIB)
    return uuid, units, limit


def _expect(annotations: Mapping[str, str], key: str, wanted: str, *, strip: str = "") -> None:
    found = annotations.get(key)
    if found is None:
        raise RecordError(f"{key} is missing")
    if ",".join(part.removeprefix(strip) for part in found.split(",")) != wanted:
        raise RecordError(f"{key} says {found[:200]!r}, the allocation {wanted[:200]!r}")
