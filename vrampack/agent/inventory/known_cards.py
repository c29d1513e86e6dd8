"""Which cards this node has or had, and their health: the values that discovery publishes. Pure.

**A card that is no longer there.** Pods hold units on it, and a pod whose card its node does not list counts on *every*
card of the node (`vrampack/cards/holding.py`). So:

* A GPU that the driver no longer lists stays listed, unhealthy, with its units, until the agent restarts: its pods keep
  their units where they are, nothing new is placed there, and people see what is missing. If it comes back it heals
  as any card does.
* A card that a repartition removed (a MIG instance, or a GPU that was switched into MIG mode) stays listed, unhealthy, only
  while a pod of this node still holds it, and is then dropped. The driver derives an instance's uuid from the chip and the
  instance's place on it, so an instance that is made again at the same place is the same card.
* A restarted agent knows only what the driver lists. A pod on a missing card then counts on every card, which is safe and
  lasts until the pod is gone.

**Its numbers.** The minor and the instance numbers of a card that is gone may be another's by now, so no container may be given
a card that the driver does not list (`CardPresence`). Only a complete list shows that a card is gone: one with a card that the
driver counts but does not describe leaves open which card that is.

An index belongs to the card that the driver gives it to; a missing card whose index is taken gets the highest free one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum

from vrampack.agent.inventory.health import CardHealth
from vrampack.agent.nvml.driver import Gpu, GpuInventory, Xid
from vrampack.cards.node import CardFacts
from vrampack.cards.records import MAX_INDEX


@dataclass(frozen=True, slots=True)
class KnownCard:
    """One card that this agent has seen."""

    gpu: Gpu
    health: CardHealth = field(default_factory=CardHealth)
    is_missing: bool = False
    """Whether the last complete list lacks it."""

    @property
    def gpu_uuid(self) -> str:
        """The uuid of the GPU, even if the card is an instance of it."""
        return self.gpu.mig_parent or self.gpu.uuid


class CardPresence(Enum):
    """What the driver says about a card, whether or not it is one of ours."""

    LISTED = "listed"
    MISSING = "missing"
    UNKNOWN = "unknown"
    """The last list failed, or is not complete."""


def find_presence(uuid: str, known: KnownCard | None, inventory: GpuInventory) -> CardPresence:
    """The presence of a card according to a list; `known` is the card if it was seen before."""
    if any(card.uuid == uuid for card in inventory.gpus):
        return CardPresence.LISTED
    if inventory.unreadable and not (known is not None and is_repartitioned(known.gpu, inventory)):
        return CardPresence.UNKNOWN
    return CardPresence.MISSING


def explain_absence(uuid: str, presence: CardPresence) -> str:
    """Why no container may be given the card now; empty when one may."""
    texts = {
        CardPresence.LISTED: "",
        CardPresence.MISSING: f"card {uuid} is no longer on this node",
        CardPresence.UNKNOWN: f"the driver does not say now whether card {uuid} is still on this node",
    }
    return texts[presence]


def is_repartitioned(gpu: Gpu, inventory: GpuInventory) -> bool:
    """Whether a card that is no longer listed was removed by a repartition, as opposed to lost."""
    if gpu.uuid in inventory.mig_gpus:
        return True
    there = inventory.mig_gpus | {card.uuid for card in inventory.gpus}
    return gpu.mig_parent is not None and gpu.mig_parent in there


def is_affected(gpu: Gpu, xid: Xid) -> bool:
    """Whether the error is about this card. One that names no GPU may be about any."""
    if xid.uuid is None or gpu.uuid == xid.uuid:
        return True
    if gpu.mig_parent != xid.uuid:
        return False
    is_its_gpu = xid.gpu_instance in (None, gpu.gpu_instance)
    return is_its_gpu and xid.compute_instance in (None, gpu.compute_instance)


def list_card_facts(known_cards: Iterable[KnownCard], units_by_uuid: Mapping[str, int]) -> tuple[CardFacts, ...]:
    """The cards to publish, sorted by index."""
    here = [(card.gpu.index, card) for card in known_cards if not card.is_missing]
    missing = sorted((card for card in known_cards if card.is_missing), key=lambda card: card.gpu.uuid)
    taken = {index for index, _ in here}
    for card in missing:
        index = card.gpu.index if card.gpu.index not in taken else _highest_free(taken)
        taken.add(index)
        here.append((index, card))
    return tuple(
        _to_card_facts(card, index, units_by_uuid[card.gpu.uuid])
        for index, card in sorted(here, key=lambda each: each[0])
    )


def _highest_free(taken: set[int]) -> int:
    return next(index for index in range(MAX_INDEX, -1, -1) if index not in taken)


def _to_card_facts(card: KnownCard, index: int, units: int) -> CardFacts:
    return CardFacts(
        index=index,
        units=units,
        memory_mib=card.gpu.memory_mib,
        uuid=card.gpu.uuid,
        model=card.gpu.model,
        healthy=card.health.is_healthy,
        numa=card.gpu.numa,
        mig_parent=card.gpu.mig_parent,
        reason=card.health.reason,
        verdict=card.health.verdict,
    )
