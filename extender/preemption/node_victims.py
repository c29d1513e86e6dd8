"""Which pods must leave a node so that a pod finds its cards there: for the verb preempt and for preemption by card."""

from __future__ import annotations

from collections.abc import Collection

from extender.preemption.victims import find_added_victims
from extender.state.ledger import Ledger
from extender.state.nominator import Nominator
from vrampack.cards.holding import Hold
from vrampack.cards.pod import Pod
from vrampack.cards.request import CardRequest


class NodeVictims:
    """As the ledger has the nodes, and with the cards that are kept for nominated pods."""

    def __init__(self, ledger: Ledger, nominator: Nominator) -> None:
        self._ledger = ledger
        self._nominator = nominator

    def find_victims(
        self,
        name: str,
        pod: Pod,
        request: CardRequest,
        *,
        leaving_uids: Collection[str] = frozenset(),
        protected_uids: Collection[str] = frozenset(),
    ) -> list[Hold] | None:
        """The holds to free besides those of pods that leave anyway; None where no pods of a lower priority are enough."""
        node = self._ledger.get_node(name)
        if node is None:
            return None
        holds = [hold for hold in self._ledger.list_holds(name) if hold.pod.uid != pod.uid]
        holds += self._nominator.list_holds_against(name, pod)
        return find_added_victims(
            node,
            holds,
            request=request,
            priority=pod.priority,
            leaving_uids=leaving_uids,
            protected_uids={*protected_uids, *self._ledger.places.list_undecided_on(name)},
            rules=self._ledger.placement.rules,
        )
