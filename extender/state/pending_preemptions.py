"""Answers of preempt whose outcome the API does not show yet: which pods may be evicted, where, and for which pod.

    preempt answers --> pending on all nodes --nomination--> on that node --bound, terminating, gone, or 5 s--> forgotten

The scheduler goes on to its next pod at once. It writes the nomination while it deletes the victims, and the watch may
show it after the deletions: until then the victims' cards would be free for any pod. Of an answer with many nodes only
those count where a victim is terminating. A restart forgets all this; the nominations then come from the API.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass

from extender.state.ledger import Ledger
from vrampack.cards.pod import Pod

PENDING_SECONDS = 5.0
"""Deletions and nomination are written within milliseconds; an API server that takes longer has other troubles."""
MAX_PENDING = 64
"""Answers that are remembered: the scheduler tries one pod at a time, and preempts for fewer than 64 in 5 s."""
MAX_IMMEDIATE_NODES = 32
"""How many nodes, of all answers, count at once: cards that are kept on a node without an eviction are lost to others meanwhile."""


@dataclass(slots=True)
class PendingPreemption:
    """One answer."""

    pod: Pod
    victims: Mapping[str, tuple[str, ...]]
    """Uids by node. Tuples: the garbage collector stops tracking tuples of strings, but visits sets every time."""
    nominated_before: frozenset[str]
    """The nominations that the scheduler and the ledger knew before: they do not result from this answer."""
    expires_at: float
    is_immediate: bool
    """Whether all its nodes count; if not, only those where a victim is terminating."""
    is_known: bool
    """Whether the ledger has shown the pod."""
    shown: Pod | None
    """The pod as the ledger showed it last."""
    going_nodes: set[str]
    """The nodes where a victim is terminating."""
    generation: int
    """The generation of the ledger up to which `going_nodes` is right."""


class PendingPreemptions:
    """At most one answer for each pod, the oldest first."""

    def __init__(self, ledger: Ledger, *, clock: Callable[[], float]) -> None:
        self._ledger = ledger
        self._clock = clock
        self._pending: dict[str, PendingPreemption] = {}
        self._pods_by_node: dict[str, list[Pod]] = {}
        self._listed_at: int | None = None
        """The generation of the ledger for which `_pods_by_node` is right, if any."""
        self._changed_nodes: set[str] = set()
        """Nodes whose listed pods, or their victims, changed since the last `take_changed_nodes`."""
        self._reported_nodes: set[str] = set()
        """Nodes listed since the last `take_ended_nodes`."""

    def add_preemption(self, pod: Pod, victims: Mapping[str, Collection[str]], going_nodes: Iterable[str]) -> None:
        """Preempt answered these uids, by node, for the pod as its call shows it.

        `going_nodes` are the nodes of which `is_any_terminating` is true for the victims: an answer has thousands of them, so
        the caller checks them slice by slice.
        """
        self._forget_answer(pod.uid)
        known = self._ledger.get_pod(pod.uid)
        self._pending[pod.uid] = PendingPreemption(
            pod,
            victims={name: tuple(uids) for name, uids in victims.items()},
            nominated_before=frozenset({"", pod.nominated_node, known.nominated_node if known is not None else ""}),
            expires_at=self._clock() + PENDING_SECONDS,
            is_immediate=len(victims) + self._count_immediate_nodes() <= MAX_IMMEDIATE_NODES,
            is_known=known is not None,
            shown=known,
            going_nodes=set(going_nodes),
            generation=self._ledger.generation,
        )
        if len(self._pending) > MAX_PENDING:
            self._forget_answer(next(iter(self._pending)))

    def withdraw_preemption(self, uid: str) -> None:
        """No pod is evicted for this one any more."""
        self._forget_answer(uid)

    def is_any_terminating(self, uids: Iterable[str]) -> bool:
        """Whether any of these pods is terminating or gone.

        One without a memory request counts as gone: the ledger does not know it.
        """
        return any((pod := self._ledger.get_pod(uid)) is None or pod.is_terminating for uid in uids)

    def __len__(self) -> int:
        return len(self._pending)

    def __contains__(self, uid: str) -> bool:
        return uid in self._pending

    @property
    def has_changed(self) -> bool:
        """Whether `list_pods_by_node` or `take_changed_nodes` may say something new while the ledger stays as it is."""
        return bool(self._pending or self._pods_by_node or self._changed_nodes)

    def list_pods_by_node(self) -> Mapping[str, list[Pod]]:
        """The pods for which others may be evicted, by node."""
        if self._is_listing_current():
            return self._pods_by_node
        found: dict[str, list[Pod]] = {}
        for each, pod in self._drop_ended(list(self._pending.values())):
            for name in self._list_nodes(each, pod):
                found.setdefault(name, []).append(pod)
        before, self._pods_by_node = self._pods_by_node, found
        self._listed_at = self._ledger.generation
        self._changed_nodes |= {name for name in found.keys() | before.keys() if found.get(name) != before.get(name)}
        self._reported_nodes |= found.keys()
        return found

    def take_changed_nodes(self) -> set[str]:
        """Return the nodes whose listed pods, or their victims, changed since the last call."""
        changed, self._changed_nodes = self._changed_nodes, set()
        return changed

    def list_victims(self, uid: str, node_name: str) -> tuple[str, ...]:
        """The uids of the pods that may be evicted from this node for that pod."""
        each = self._pending.get(uid)
        return each.victims.get(node_name, ()) if each is not None else ()

    def take_ended_nodes(self) -> set[str]:
        """Return the nodes that were listed since the last call and are no longer pending."""
        listed = self.list_pods_by_node().keys()
        before, self._reported_nodes = self._reported_nodes, set(listed)
        return before - listed

    def _drop_ended(self, answers: Iterable[PendingPreemption]) -> Iterator[tuple[PendingPreemption, Pod]]:
        """The answers that still count, each with the pod as it is now; the others are forgotten."""
        now = self._clock()
        for each in answers:
            uid = each.pod.uid
            each.shown = known = self._ledger.get_pod(uid)
            each.is_known |= known is not None
            pod = known if each.is_known else each.pod
            if pod is None or pod.node_name or pod.is_terminating or now >= each.expires_at:
                self._forget_answer(uid)
            else:
                yield each, pod

    def _forget_answer(self, uid: str) -> None:
        answer = self._pending.pop(uid, None)
        self._listed_at = None
        if answer is not None:
            # If the pod's next answer lists it there again with other victims, comparing the lists shows no change.
            self._changed_nodes |= answer.victims.keys() & self._pods_by_node.keys()

    def _is_listing_current(self) -> bool:
        if not self._pending:
            return not self._pods_by_node
        now = self._clock()
        return self._listed_at == self._ledger.generation and all(
            now < each.expires_at and self._ledger.get_pod(uid) is each.shown for uid, each in self._pending.items()
        )

    def _count_immediate_nodes(self) -> int:
        answers = [each for each in self._pending.values() if each.is_immediate]
        return sum(len(self._list_nodes(each, pod)) for each, pod in self._drop_ended(answers))

    def _list_nodes(self, each: PendingPreemption, pod: Pod) -> Collection[str]:
        if pod.nominated_node not in each.nominated_before:
            return each.victims.keys() & {pod.nominated_node}
        if each.is_immediate:
            return each.victims.keys()
        self._follow_victims(each)
        return each.going_nodes

    def _follow_victims(self, each: PendingPreemption) -> None:
        """Check again only the nodes that changed since the last check: an answer may name thousands of victims."""
        generation = self._ledger.generation
        if each.generation == generation:
            return
        changed = self._ledger.list_nodes_changed_since(each.generation)
        for name in each.victims if changed is None else each.victims.keys() & changed:
            if self.is_any_terminating(each.victims[name]):
                each.going_nodes.add(name)
            else:
                each.going_nodes.discard(name)
        each.generation = generation
