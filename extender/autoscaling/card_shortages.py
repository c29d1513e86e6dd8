"""Finds the pods for which no autoscaler adds a node: the sums of some node fit them, and no card of any node does.

Pods that ask for the same cards and may use the same nodes are of one shape. Some node must be of a kind that would take the pod if it
were empty: no node more helps a pod that is larger than any card.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from hashlib import sha256
from typing import NamedTuple, TypeAlias

import msgspec

from extender.autoscaling.node_rules import NodeRules, RuleKey, may_use_new_node
from extender.autoscaling.stranded_nodes import VISITS_PER_SLICE
from extender.state.ledger import Ledger
from vrampack.cards.fit import Unfit, find_fitting_cards
from vrampack.cards.pod import Pod
from vrampack.cards.request import CardRequest

MAX_SHORTAGES = 64
"""Of the pods that wait longest; the others come after them."""
REMEMBERED_SHAPES = 64
"""Of any more, which nodes they may use is found anew each time: of thousands it would fill the memory."""

Pause: TypeAlias = Callable[[], Awaitable[None]]
"""Lets other tasks run."""


class PodShape(NamedTuple):
    request: CardRequest
    asked_units: int
    rules: RuleKey

    @property
    def name(self) -> str:
        """The same in every process, and of the form that a pod's name has."""
        return "shape-" + sha256(msgspec.json.encode(self, order="deterministic")).hexdigest()[:16]


class CardShortage(NamedTuple):
    """Of one shape."""

    shape: PodShape
    pods: Mapping[str, Pod]
    """By uid."""
    nodes: tuple[str, ...]
    """Those whose sums fit."""


async def find_shortages(
    ledger: Ledger, rules: NodeRules, pause: Pause, *, unusable_labels: Collection[str]
) -> Mapping[str, CardShortage]:
    """By the names of their shapes, without the pods whose rules name one of these labels of nodes.

    Other tasks run in between, while `pause` is awaited, so it is as right as the ledger was during the call.
    """
    shortages: dict[str, CardShortage] = {}
    for count, (shape, pods) in enumerate(await _list_shapes(ledger, rules, pause, unusable_labels)):
        await pause()
        if nodes := await _list_seeming(ledger, rules, pause, shape, is_remembered=count < REMEMBERED_SHAPES):
            shortages[shape.name] = CardShortage(shape, pods, tuple(nodes))
        if len(shortages) == MAX_SHORTAGES:
            break
    return shortages


async def _list_shapes(
    ledger: Ledger, rules: NodeRules, pause: Pause, unusable_labels: Collection[str]
) -> Sequence[tuple[PodShape, Mapping[str, Pod]]]:
    """Each with its pods, by uid; first the shape of the pod that has waited longest."""
    shapes: dict[PodShape, dict[str, Pod]] = {}
    first: dict[PodShape, tuple[str, str]] = {}
    for count, pod in enumerate(ledger.list_unbound_pods(), start=1):
        if count % VISITS_PER_SLICE == 0:
            await pause()
        if (shape := _find_shape(pod, rules)) and may_use_new_node(shape.rules, unusable_labels):
            shapes.setdefault(shape, {})[pod.uid] = pod
            first[shape] = min(first.get(shape, get_age_key(pod)), get_age_key(pod))
    return sorted(shapes.items(), key=lambda item: first[item[0]])


def _find_shape(pod: Pod, rules: NodeRules) -> PodShape | None:
    """None if no node is to be asked for: one card helps no group, and no new node has the cards that a pod names."""
    key, request = rules.find_key(pod.uid), pod.request
    if key is None or request is None or not (pod.is_waiting and pod.failed_attempt):
        return None
    if pod.group is not None or pod.node_to_keep or request.card_request.uuids is not None:
        return None
    return PodShape(request.card_request, request.asked_units, key)


def get_age_key(pod: Pod) -> tuple[str, str]:
    """The pod that has waited longest comes first by it."""
    return pod.created_at, pod.uid


async def _list_seeming(
    ledger: Ledger, rules: NodeRules, pause: Pause, shape: PodShape, *, is_remembered: bool
) -> list[str]:
    """The nodes whose sums fit such a pod, and whose cards would if they were empty; none if one has a card for it now."""
    seeming = []
    for count, node in enumerate(ledger.list_nodes(), start=1):
        if count % VISITS_PER_SLICE == 0:
            await pause()
        unasked_units = ledger.nodes.get_unasked_units(node.name)
        fits_sum = unasked_units is None or unasked_units >= shape.asked_units
        if not (fits_sum and rules.may_use(shape.rules, node.name, is_remembered=is_remembered)):
            continue
        cards = find_fitting_cards(node, shape.request)
        if not isinstance(cards, Unfit):
            return []
        if not cards.reason.is_unresolvable:
            seeming.append(node.name)
    return seeming
