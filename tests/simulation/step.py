"""A step with its choices as numbers: a run is a list of these, and dropping one leaves a run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol, TypeVar

_T = TypeVar("_T")


class ChoosingWorld(Protocol):
    """What notes the name of what was chosen."""

    chosen: str


@dataclass(frozen=True, slots=True)
class Step:
    """`pick` chooses the object, `how` the variant. `target` names the object, once a run has shown what was picked."""

    name: str
    pick: int = 0
    how: int = 0
    target: str = ""


def choose(among: Sequence[_T], world: ChoosingWorld, step: Step) -> _T | None:
    """The one that the step means, if it is there; the world notes its name, and which of that name it is."""
    if step.target:
        name, _, place = step.target.partition(" #")
        alike = [each for each in among if _label(each) == name]
        return alike[int(place or 0)] if int(place or 0) < len(alike) else None
    if not among:
        return None
    at = step.pick % len(among)
    name = _label(among[at])
    earlier = sum(_label(each) == name for each in among[:at])
    world.chosen = f"{name} #{earlier}" if earlier else name
    return among[at]


def _label(item: object) -> str:
    if isinstance(item, dict):
        return str(item["metadata"]["name"])
    return " ".join(item) if isinstance(item, tuple) else str(item)


def resolved(step: Step, target: str) -> Step:
    """The same step by name, so that it means the same when others are left out."""
    return replace(step, target=step.target or target)
