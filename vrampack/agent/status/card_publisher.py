"""Publishes the cards on the Node: the annotation `vrampack.dev/cards`, the condition, and events when none is offered.

The annotation is also the agent's memory: it reads the verdicts back before it first checks the cards.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from dataclasses import replace

from vrampack.agent.admission.injection import Injection
from vrampack.agent.cluster.cards_condition import CardsCondition
from vrampack.agent.cluster.own_node import OwnNode
from vrampack.agent.events import AgentEventReason
from vrampack.agent.inventory.advertisement import Advertised, Advertisement
from vrampack.agent.inventory.device_naming import choose_device_naming, find_cdi_problem
from vrampack.agent.inventory.verdict_book import VerdictBook
from vrampack.agent.limits.enforcement import Enforcement
from vrampack.agent.settings import AgentConfiguration
from vrampack.cards import well_known
from vrampack.cards.card_verdicts import CardHeal, read_heals, read_stored_verdicts
from vrampack.cards.node_annotations import read_node, write_cards
from vrampack.cards.request import REQUEST_WORDS
from vrampack.kube.events import EventRecorder

log = logging.getLogger(__name__)


class CardPublisher:
    """Of one node."""

    def __init__(  # noqa: PLR0913 - what it says and where, each named
        self,
        own_node: OwnNode,
        advertisement: Advertisement,
        injection: Injection,
        enforcement: Enforcement,
        verdicts: VerdictBook,
        condition: CardsCondition,
        *,
        events: EventRecorder,
        settings: AgentConfiguration,
        node: str,
    ) -> None:
        self._own_node = own_node
        self._advertisement = advertisement
        self._injection = injection
        self._enforcement = enforcement
        self._verdicts = verdicts
        self._condition = condition
        self._events = events
        self._settings = settings
        self._node = node
        verdicts.follow_node(self.read_heals)

    async def _restore_verdicts(self) -> None:
        """Read back what the previous agent wrote, once the API server has shown the Node."""
        await self._own_node.wait_for_sync()
        self._verdicts.restore(read_stored_verdicts(self._own_node.get_current("annotations", well_known.NODE_CARDS)))

    def read_heals(self) -> Mapping[str, CardHeal]:
        """The heals that operators wrote on the Node."""
        return read_heals(self._own_node.get_current("annotations", well_known.HEALED_CARDS))

    async def run(self) -> None:
        """Publish each change, until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._restore_verdicts())
            group.create_task(self._condition.run())
            group.create_task(self._publish_cards())

    async def _publish_cards(self) -> None:
        """Write the cards to the Node object at each change. A node that never had any gets no annotation."""
        async for advertised in self._advertisement.watch_changes():
            if advertised.problem:
                log.error("cards not advertised problem=%s", advertised.problem)
                self._events.record_node_event(self._node, AgentEventReason.NOT_OFFERED, advertised.problem)
            await self._own_node.wait_for_sync()
            has_published = self._own_node.get_current("annotations", well_known.NODE_CARDS) is not None
            if not advertised.is_discovered or not (advertised.cards or has_published):
                continue
            self._advertisement.block("runtime", find_cdi_problem(self._settings.devices, advertised.cards))
            if advertised.cards:
                await self._injection.wait_until_chosen()
            self.write_cards(self._advertisement.current)

    def write_cards(self, advertised: Advertised) -> None:
        instances, has_hook = self._find_instances()
        text = write_cards(
            [replace(card, instances=instances.get(card.uuid or "")) for card in advertised.published_cards],
            unit_mib=self._settings.unit_mib,
            injection=self._injection.mode,
            devices=choose_device_naming(self._settings.devices, advertised.cards),
            serves=REQUEST_WORDS,
            has_hook=has_hook,
            absent=self._verdicts.absent,
        )
        self._own_node.set_desired({("annotations", well_known.NODE_CARDS): text})
        self._condition.set_cards(advertised.cards)

    def _find_instances(self) -> tuple[Mapping[str, int], bool]:
        """The instances of each card that has a number, and whether containers have some of their own.

        Until a back end runs, as the previous agent published them: without them the extender would place pods past their number.
        """
        if self._enforcement.has_started:
            return self._enforcement.card_instances, self._enforcement.limits_containers_apart
        text = self._own_node.get_current("annotations", well_known.NODE_CARDS)
        annotations = {} if text is None else {well_known.NODE_CARDS: text}
        facts = read_node(self._node, annotations, {}, unit_mib=self._settings.unit_mib).facts
        return {card.uuid or "": card.instances for card in facts.cards if card.instances is not None}, facts.has_hook
