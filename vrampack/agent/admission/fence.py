"""The last fence: which container may start on which cards. No file, no network, no clock; `device_plugin.py` asks before every start.

    start --unknown here--> evaluated --refused--> (kubelet asks again; `admission/rejected_pods.py` ends it)
      |                        |
      | admitted before        v
      '-------------------> admitted: its pod holds its cards until it is gone from the node (`lingering_pods.py`)

A pod that was admitted once is admitted at every later start on cards that are still there, whatever else changed: it runs, and
its memory is counted. Only admitted pods count, so of two pods that were given the same memory exactly one starts.

A card that the driver does not list goes to no container, at its first start or a later one: `inventory/known_cards.py` says why.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

from vrampack.agent.admission.errors import RefusedStartError
from vrampack.agent.cluster.local_pod import LocalPod
from vrampack.agent.inventory.known_cards import CardPresence, explain_absence
from vrampack.agent.kubelet.device_ids import count_readable_units, count_units_by_card
from vrampack.agent.kubelet.podresources import DeviceAllocation
from vrampack.cards.grants import Grant, read_grant
from vrampack.cards.holding import count_share_units
from vrampack.cards.node import CardFacts, Share
from vrampack.cards.records import Record, RecordError, UnreadableRecord
from vrampack.cards.units import compute_limit_mib

REJECTION_REASONS = (
    "unknown_ids",
    "unknown_pod",
    "api",
    "other_node",
    "static",
    "runtime_class",
    "before_admission",
    "no_record",
    "record",
    "unknown_card",
    "driver",
    "overcommitted",
    "lingering",
    "limit",
    "cdi",
    "deadline",
)
"""Why a container is not started, for the metric."""


@dataclass(frozen=True, slots=True)
class ContainerStart:
    """A container that kubelet wants to start, and the pod that the API server shows for it."""

    allocation: DeviceAllocation
    pod: LocalPod
    is_injected: bool = False
    """Its cards are handed over by CDI when it starts; otherwise only its environment names them."""


@dataclass(frozen=True, slots=True)
class AdmittedStart:
    """Permission for one container to start."""

    pod_uid: str
    grant: Grant | None
    """What the container may use; None for a container that a previous plugin set up."""
    is_legacy: bool = False
    """Its device ids are those of a previous plugin, whose answer kubelet repeats."""
    has_id_mismatch: bool = False
    """kubelet's ids belong to other cards than the record. The container's environment is right; only kubelet's count is not.

    The units that a whole card has fewer than its pod asks for are always of other cards, and are no mismatch.
    """


class Fence:
    """The starts and the held units of one node."""

    def __init__(
        self,
        node: str,
        *,
        find_presence: Callable[[str], CardPresence] = lambda _uuid: CardPresence.LISTED,
        is_class_allowed: Callable[[str], bool] = lambda _name: True,
    ) -> None:
        """`find_presence`: what the driver says now about the card with this uuid.

        `is_class_allowed`: whether containers of this runtime class may start.
        """
        self._node = node
        self._find_presence = find_presence
        self._is_class_allowed = is_class_allowed
        self._units_by_pod: dict[str, Counter[str]] = {}
        """Units by card of every admitted pod, by pod uid."""
        self._admitted_starts: dict[DeviceAllocation, AdmittedStart] = {}
        self._lingering_names: dict[str, str] = {}
        """By uid, pods that the API server no longer has and that still hold their units."""

    def count_held_units(self) -> Counter[str]:
        """Units by card, of all admitted pods."""
        total: Counter[str] = Counter()
        for units in self._units_by_pod.values():
            total.update(units)
        return total

    @property
    def lingering_count(self) -> int:
        """Pods that hold units although the API server no longer has them."""
        return len(self._lingering_names)

    def find_admitted(self, allocation: DeviceAllocation) -> AdmittedStart | None:
        """The earlier permission of this very container. An init container's name may be empty."""
        if allocation.container:
            return self._admitted_starts.get(allocation)
        return next(
            (leave for each, leave in self._admitted_starts.items() if replace(each, container="") == allocation), None
        )

    def release_ids(self, ids: Iterable[str]) -> None:
        """Kubelet gives these ids to a container that has not started yet: forget what earlier containers did with them."""
        handed = set(ids)
        for held in [each for each in self._admitted_starts if not handed.isdisjoint(each.device_ids)]:
            del self._admitted_starts[held]

    def mark_lingering(self, uid: str, name: str) -> bool:
        """The pod starts no more containers, and holds what it has until `release_pod`. False if it holds nothing."""
        self._drop_starts(uid)
        if uid in self._units_by_pod:
            self._lingering_names[uid] = name
        return uid in self._units_by_pod

    def hold_units(self, uid: str, units: Mapping[str, int]) -> None:
        """Count a pod of which only its units by card are known."""
        self._units_by_pod.setdefault(uid, Counter(units))

    def release_pod(self, uid: str) -> None:
        """The pod no longer holds anything."""
        self._drop_starts(uid)
        self._units_by_pod.pop(uid, None)
        self._lingering_names.pop(uid, None)

    def check_presence(self, uuids: Iterable[str]) -> None:
        """Raises `RefusedStartError` unless the driver lists these cards now."""
        for uuid in sorted(uuids):
            presence = self._find_presence(uuid)
            if presence is CardPresence.MISSING:
                raise RefusedStartError("unknown_card", f"{explain_absence(uuid, presence)}; recreate the pod")
            if presence is CardPresence.UNKNOWN:
                raise RefusedStartError("driver", f"{explain_absence(uuid, presence)}; it is tried again")

    def evaluate_start(self, start: ContainerStart, cards: Iterable[CardFacts]) -> AdmittedStart:
        """Permit the start on these cards of the node, without recording it. Raises `RefusedStartError`."""
        pod, by_uuid = start.pod, {card.uuid or "": card for card in cards}
        _check_origin(pod, self._node)
        if pod.pod.uid in self._units_by_pod:
            admitted = _readmit(pod, start.allocation)
            self.check_presence(admitted.grant.units if admitted.grant is not None else ())
            return admitted
        if not self._is_class_allowed(pod.runtime_class):
            text = (
                f"runtime class {pod.runtime_class} may bypass what enforces its limit: name another one or none, "
                "or see runtime_classes in the agent's configuration"
            )
            raise RefusedStartError("runtime_class", text)
        ids = count_units_by_card(start.allocation.device_ids)
        if ids is None:
            self.check_presence(_list_uuids(_read_shares(pod)))
            return AdmittedStart(pod.pod.uid, None, is_legacy=True)
        if pod.pod.request is None or not (start.is_injected or pod.pod.request.has_references):
            text = "it was created before the admission policy; recreate it: its container would not learn its card"
            raise RefusedStartError("before_admission", text)
        self.check_presence(_list_uuids(_read_shares(pod)))
        # All its containers, at the first of them: the others start without another look at the node's cards.
        names = [start.allocation.container, *(each.name for each in pod.pod.request.containers)]
        grant = {name: _checked_grant(pod, name, _read_shares(pod), by_uuid) for name in names}[
            start.allocation.container
        ]
        self._check_capacity(_resolve_units(_read_shares(pod), by_uuid), by_uuid)
        return AdmittedStart(pod.pod.uid, grant, has_id_mismatch=_has_id_mismatch(pod, grant, ids))

    def record_start(self, start: ContainerStart, admitted: AdmittedStart, cards: Iterable[CardFacts]) -> None:
        """Record what `evaluate_start` permitted, in the same turn of the loop."""
        if admitted.pod_uid not in self._units_by_pod:
            units = _resolve_units(_read_shares(start.pod), {card.uuid or "": card for card in cards})
            self._units_by_pod[admitted.pod_uid] = Counter(units)
        self._admitted_starts[start.allocation] = admitted

    def withdraw_start(self, start: ContainerStart, admitted: AdmittedStart) -> bool:
        """Take an entry back for a container that is not started after all. Returns whether its pod holds nothing now.

        A pod that was deleted meanwhile lingers, and holds its units until its cgroup is gone: others of its containers may run.
        """
        uid = admitted.pod_uid
        self._admitted_starts.pop(start.allocation, None)
        if uid not in self._lingering_names and not any(each.pod_uid == uid for each in self._admitted_starts.values()):
            self._units_by_pod.pop(uid, None)
        return uid not in self._units_by_pod

    def find_unadmitted_pods(self, pods: Iterable[LocalPod]) -> list[LocalPod]:
        """The pods of which a requesting container was created although they never passed: it started unasked."""
        return [
            pod
            for pod in pods
            if pod.started_containers & _requesting_containers(pod) and pod.pod.uid not in self._units_by_pod
        ]

    def restore_pods(
        self, pods: Iterable[LocalPod], allocations: Iterable[DeviceAllocation], cards: Iterable[CardFacts]
    ) -> list[LocalPod]:
        """Count what runs already: if a requesting container was created, its pod has passed this fence or an earlier one.

        Returns the pods that were not known.

        Such a pod holds what its record says or, when that cannot be read, what its device ids stand for.
        """
        by_uuid = {card.uuid or "": card for card in cards}
        of_pod: dict[tuple[str, str], list[DeviceAllocation]] = {}
        for each in allocations:
            of_pod.setdefault((each.namespace, each.pod_name), []).append(each)
        found = self.find_unadmitted_pods(pods)
        for pod in found:
            mine = of_pod.get((pod.pod.namespace, pod.pod.name), [])
            record = pod.pod.record
            shares = record.shares if isinstance(record, Record) else ()
            self._units_by_pod[pod.pod.uid] = Counter(_resolve_units(shares, by_uuid) or _count_units_by_ids(mine))
            for each in mine:
                if each.container in pod.started_containers:
                    self._admitted_starts[each] = _readmit(pod, each)
        return found

    def _drop_starts(self, uid: str) -> None:
        for held in [held for held, passed in self._admitted_starts.items() if passed.pod_uid == uid]:
            del self._admitted_starts[held]

    def _check_capacity(self, units: Mapping[str, int], cards: Mapping[str, CardFacts]) -> None:
        """Raises unless the cards have room for it besides all pods that passed."""
        held = self.count_held_units()
        for uuid, asked in units.items():
            if held[uuid] + asked > cards[uuid].units:
                text = (
                    f"card {uuid} has {cards[uuid].units} units, running pods hold {held[uuid]}, "
                    f"and this pod was given {asked}"
                )
                lingering = {uid: self._units_by_pod[uid][uuid] for uid in self._lingering_names}
                if held[uuid] - sum(lingering.values()) + asked <= cards[uuid].units:
                    names = ", ".join(sorted(self._lingering_names[uid] for uid, kept in lingering.items() if kept))
                    raise RefusedStartError("lingering", f"{text}: the node still runs {names}, which was deleted")
                raise RefusedStartError("overcommitted", f"{text}: it was bound without the extender's ledger")


def _check_origin(pod: LocalPod, node: str) -> None:
    if pod.is_static:
        text = "a static pod is not scheduled and gets no card; make it a DaemonSet or a bare pod"
        raise RefusedStartError("static", text)
    if pod.pod.node_name != node:
        raise RefusedStartError(
            "other_node", f"the pod is bound to node {pod.pod.node_name or 'none'}, but this is {node}"
        )


def _read_shares(pod: LocalPod) -> tuple[Share, ...]:
    record = pod.pod.record
    if record is None:
        text = "the pod has no record of its cards: another scheduler bound it, or it named its node; recreate it"
        raise RefusedStartError("no_record", text)
    if isinstance(record, UnreadableRecord):
        raise RefusedStartError("record", f'annotation "{record.key}": {record.problem}; recreate the pod')
    return record.shares


def _checked_grant(pod: LocalPod, container: str, shares: tuple[Share, ...], cards: Mapping[str, CardFacts]) -> Grant:
    """The container's grant, checked against the pod's own request and the node's cards."""
    try:
        grant = read_grant(pod.annotations, container)
    except RecordError as error:
        raise RefusedStartError("record", f'annotation "{error}"; recreate the pod') from error
    strangers = sorted({*grant.units, *(share.uuid or "" for share in shares)} - cards.keys())
    if strangers:
        text = f"card {strangers[0] or 'without a uuid'} is no longer on this node; recreate the pod"
        raise RefusedStartError("unknown_card", text)
    _check_units(shares, cards)
    _check_request(pod, container, grant, shares, cards)
    check_limits(grant, cards, is_whole=pod.pod.request is not None and pod.pod.request.card_request.whole)
    return grant


def _check_units(shares: Iterable[Share], cards: Mapping[str, CardFacts]) -> None:
    """The pod must be bound to the card as it is counted now: a forged record may say that its units are more of a card."""
    for share in shares:
        card = cards[share.uuid or ""]
        if share.card_units not in (None, card.units):
            text = f"it was bound when card {card.uuid} had {share.card_units} units, which has {card.units} now"
            raise RefusedStartError("record", f"{text}; recreate the pod")


def _check_request(
    pod: LocalPod, container: str, grant: Grant, shares: tuple[Share, ...], cards: Mapping[str, CardFacts]
) -> None:
    """The record must give what the pod asks for: a forged one may say less, in order to fit, or more."""
    ask = pod.pod.request
    if ask is None:
        raise RefusedStartError("record", "its pod has a record but requests nothing; recreate the pod")
    request = ask.card_request
    held = {share.uuid: share.units for share in shares}
    wanted = {uuid: request.get_taken_units(cards[uuid].units) for uuid in cards if uuid in held}
    own = [each.units // request.count for each in ask.containers if each.name == container]
    if len(held) != request.count or held != wanted or list({*grant.units.values()}) != own:
        text = f"its record gives {held} to the pod and {dict(grant.units)} to this container, which is not what they request"
        raise RefusedStartError("record", f"{text}; recreate the pod")
    if grant.units.keys() != held.keys():
        raise RefusedStartError("record", "its containers have other cards than the pod; recreate the pod")


def check_limits(grant: Grant, cards: Mapping[str, CardFacts], *, is_whole: bool) -> None:
    """Check that each card has a limit, and none above what its units stand for. Raises `RefusedStartError`."""
    for uuid, units in grant.units.items():
        card = cards[uuid]
        most = compute_limit_mib(card.memory_mib, card.units if is_whole else units, max(card.units, 1))
        if grant.limits_mib.get(uuid, most + 1) > most:
            text = f"its limit on card {uuid} is missing or above the {most} MiB that its units stand for; recreate the pod"
            raise RefusedStartError("limit", text)


def _readmit(pod: LocalPod, allocation: DeviceAllocation) -> AdmittedStart:
    """The permission for a container of a pod that passed, however many units its cards have by now."""
    ids = count_units_by_card(allocation.device_ids)
    try:
        grant = read_grant(pod.annotations, allocation.container)
    except RecordError:
        return AdmittedStart(pod.pod.uid, None, is_legacy=True)
    if ids is None:
        return AdmittedStart(pod.pod.uid, grant, is_legacy=True)
    return AdmittedStart(pod.pod.uid, grant, has_id_mismatch=_has_id_mismatch(pod, grant, ids))


def _has_id_mismatch(pod: LocalPod, grant: Grant, ids: Mapping[str, int]) -> bool:
    """Whether kubelet could have given the container ids of its own cards that it did not give."""
    request, record = pod.pod.request, pod.pod.record
    if request is None or not request.card_request.whole or not isinstance(record, Record):
        return ids != dict(grant.units)
    lacking = request.asked_units - sum(share.units for share in record.shares)
    return sum(units for card, units in ids.items() if card not in grant.units) > max(0, lacking)


def _list_uuids(shares: Iterable[Share]) -> list[str]:
    """Without the cards that older records name by index."""
    return [share.uuid for share in shares if share.uuid is not None]


def _requesting_containers(pod: LocalPod) -> set[str]:
    return {each.name for each in pod.pod.request.containers} if pod.pod.request is not None else set()


def _resolve_units(shares: Iterable[Share], cards: Mapping[str, CardFacts]) -> dict[str, int]:
    """Units by uuid, as the cards are counted now; cards of older records are named by index."""
    by_index = {card.index: uuid for uuid, card in cards.items()}
    units: Counter[str] = Counter()
    for share in shares:
        uuid = share.uuid if share.uuid is not None else by_index.get(-1 if share.index is None else share.index, "")
        units[uuid] += count_share_units(share, cards[uuid]) if uuid in cards else share.units
    return dict(units)


def _count_units_by_ids(allocations: Iterable[DeviceAllocation]) -> Counter[str]:
    units: Counter[str] = Counter()
    for each in allocations:
        units.update(count_readable_units(each.device_ids))
    return units
