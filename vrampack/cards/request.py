"""What a pod requests: units per card, how many cards, which ones. Read from the pod alone.

`PodRequest` keeps every container, because limits and records are per container; `CardRequest` is the part that
decides where the pod fits, and equal card requests share every cached answer. So a `CardRequest` is small whatever the
pod says: of the pod's texts it has only a bounded number of names, and pods that ask for the same thing in different
ways have equal card requests.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Literal, NamedTuple, get_args

from vrampack.cards import well_known
from vrampack.cards.amounts import Amounts
from vrampack.cards.host_room import HostResources
from vrampack.cards.tuned_policy import TunedPolicy
from vrampack.cards.units import MAX_UNITS, parse_units

ContainerKind = Literal["main", "init", "sidecar"]
RequestWord = Literal["memory", "several-cards", "whole-cards", "uneven-cards"]
"""What the agent of a pod's node has to understand of its request, as `serves` in `vrampack.dev/cards` names it.

A kind of request that older agents would refuse, or limit wrongly, gets a word of its own here and in `CardRequest.words`.
"""
REQUEST_WORDS: frozenset[RequestWord] = frozenset(get_args(RequestWord))
"""All of this version: what its agent publishes."""
UNLISTED_WORDS: frozenset[RequestWord] = frozenset({"memory", "several-cards", "whole-cards"})
"""What an agent understands that publishes no words. It stays as it is when words are added."""
MAX_REQUESTING_CONTAINERS = 256
"""For one pod, init containers and `gpu-mem: 0` included. More than a pod can need, and few enough to read each of them."""
MAX_COUNT_DIGITS = 4
"""No node has 10,000 cards."""
MAX_WISHES = 64
"""The most entries in a list of models or of cards: more cards than any node has, and few enough to look up each."""
MAX_WISH_LENGTH = 128
"""NVML's names and uuids have at most 96 characters."""
MAX_POLICY_LENGTH = 63
"""No policy has a longer name, and it would be stored with the pod."""


@dataclass(frozen=True, slots=True)
class ContainerSpec:
    """One container as the API server shows it. `quantity` is the text of its gpu-mem limit, None without one."""

    name: str
    kind: ContainerKind
    index: int
    """Position in `spec.containers` or `spec.initContainers`."""
    quantity: str | None = None
    has_reference: bool = False
    """Whether its NVIDIA_VISIBLE_DEVICES comes from the pod's own annotation."""

    @property
    def field(self) -> str:
        where = "containers" if self.kind == "main" else "initContainers"
        return f"spec.{where}[{self.index}].resources.limits"


class CardPayment(NamedTuple):
    """What the units that a pod asks for pay for, where whole cards are paid for (`vrampack.cards.payment`)."""

    least_units: int
    """Each of the cards has at least as many."""
    most_units: int
    """All of them together have at most as many."""


class RequestRules(NamedTuple):
    """What the cluster's rules say about a pod; equal for pods that they treat alike."""

    tenant: bytes | None = None
    """The digest of the tenant with whose pods it may share cards; empty: no other pod's. None: any pod's."""
    reserves: frozenset[int] = frozenset()
    """The reserves that it may use."""
    models: frozenset[str] | None = None
    """The only models that it may use; None: any."""


@dataclass(frozen=True, slots=True)
class CardRequest:
    """What must fit: `units` on each of `count` distinct cards of one node."""

    units: int
    count: int = 1
    whole: bool = False
    """Only empty cards, each held entirely."""
    is_even: bool = True
    """Whether the units of each container divide by the count. Only whole cards are given to others."""
    payment: CardPayment | None = None
    """Which whole cards it pays for; None: all that have its units. `PlacementRules.constrain_request` sets it."""
    models: frozenset[str] | None = None
    """Only cards of these models; None: of any."""
    uuids: frozenset[str] | None = None
    """Only these cards; None: any."""
    is_valid: bool = True
    """Whether it can be served at all. An invalid request names neither models nor cards; `PodRequest.problem` says why."""
    has_references: bool = True
    """Whether admission wired every requesting container to its annotation."""
    rules: RequestRules | None = None
    """None if the cluster has no rules. `PlacementRules.constrain_request` sets it."""
    instances: int = 1
    """How many instances of each card it takes where containers have some of their own: see `count_instances`."""
    amounts: Amounts = ()
    """What it asks of each card besides memory."""

    @property
    def least_card_units(self) -> int:
        """The least units of a card that can take it when empty."""
        return self.units if self.payment is None else self.payment.least_units

    def get_taken_units(self, card_units: int) -> int:
        """Units that it holds on a card of so many, where it fits."""
        return card_units if self.whole else self.units

    @property
    def words(self) -> frozenset[RequestWord]:
        """What its node's agent has to understand. A request that is not valid gets no further than that."""
        if self.count == 1 and not self.whole:
            return _MEMORY
        if not self.is_even:
            return _UNEVEN
        return _WORDS[self.count > 1, self.whole and self.is_valid]


_MEMORY: frozenset[RequestWord] = frozenset({"memory"})
_WORDS: Mapping[tuple[bool, bool], frozenset[RequestWord]] = {
    (False, False): _MEMORY,
    (True, False): frozenset({"memory", "several-cards"}),
    (False, True): frozenset({"memory", "whole-cards"}),
    (True, True): frozenset({"memory", "several-cards", "whole-cards"}),
}
"""By whether the request is for several cards, and whether for whole ones."""
_UNEVEN: frozenset[RequestWord] = _WORDS[True, True] | {"uneven-cards"}


@dataclass(frozen=True, slots=True)
class ContainerRequest:
    """One container and its own units, all cards together."""

    name: str
    kind: ContainerKind
    index: int
    units: int


class ProfileChoice(NamedTuple):
    """The profile that ranks for a pod."""

    name: str
    policy: TunedPolicy


@dataclass(frozen=True, slots=True)
class PodRequest:
    """Everything a pod requests. Pods that request nothing have no `PodRequest`."""

    card_request: CardRequest
    containers: tuple[ContainerRequest, ...]
    """The containers that request memory, init containers first, in the order of the spec."""
    policy: str | None = None
    """The policy or profile that the pod asks for."""
    problem: str = ""
    """Field, value and fix when the request can never be served; empty when it is valid."""
    host: HostResources | None = None
    """What it takes of its host besides the cards; None if unknown. It only helps to rank nodes."""

    profile: ProfileChoice | None = None
    """The profile that ranks for it; None: the cluster's default."""

    @property
    def has_references(self) -> bool:
        return self.card_request.has_references

    @property
    def asked_units(self) -> int:
        """On all cards together: what the scheduler and a quota count."""
        if self.containers:
            return sum_container_units(self.containers)
        return self.card_request.units * self.card_request.count


def read_pod_request(
    containers: Sequence[ContainerSpec],
    labels: Mapping[str, str],
    annotations: Mapping[str, str],
    *,
    resource: str = well_known.MEMORY_RESOURCE,
    host: HostResources | None = None,
) -> PodRequest | None:
    """What the pod requests, or None when it requests no GPU memory (`gpu-mem: 0` is nothing).

    `containers` may end with the first excess one (`take_requesting_containers`); those before it are read and counted.
    `host` is what it takes of its host besides the cards. Never raises: what cannot be read becomes `PodRequest.problem`.
    """
    container_requests, problem = _read_container_requests(containers, resource)
    if not container_requests and not problem:
        return None
    count, count_problem = _read_card_count(labels)
    whole, whole_problem = _read_whole_device(labels)
    uneven = next((each for each in container_requests if each.units % count), None)
    if uneven is not None and not whole:
        count, count_problem = 1, _describe_uneven(uneven, count)
    models, models_problem = _read_wishes(annotations, well_known.CARD_MODEL)
    uuids, uuids_problem = _read_wishes(annotations, well_known.CARD_UUID)
    problem = problem or count_problem or whole_problem or models_problem or uuids_problem
    requesting = {(container.kind, container.index) for container in container_requests}
    request = CardRequest(
        units=sum_container_units(container_requests) // count,
        count=count,
        whole=whole,
        is_even=uneven is None or bool(problem),
        models=None if problem else models,
        uuids=None if problem else uuids,
        is_valid=not problem,
        has_references=all(spec.has_reference for spec in containers if (spec.kind, spec.index) in requesting),
        instances=1 if problem else count_instances(len(container_requests)),
    )
    policy = annotations.get(well_known.POLICY, "")
    wish = policy if 0 < len(policy) <= MAX_POLICY_LENGTH else None
    return PodRequest(request, tuple(container_requests), wish, problem, host)


def take_requesting_containers(containers: Iterable[ContainerSpec | None]) -> list[ContainerSpec]:
    """The containers that name the resource, in order: at most one more than allowed, so that `read_pod_request` notices."""
    requesting = (each for each in containers if each is not None and each.quantity is not None)
    return list(islice(requesting, MAX_REQUESTING_CONTAINERS + 1))


def sum_container_units(containers: Sequence[ContainerRequest]) -> int:
    """Units that a pod holds from start to end: the scheduler's own sum.

    `max(sum(main) + sum(sidecars), max over init i of (own + sidecars declared before it))`, see
    https://kubernetes.io/docs/concepts/workloads/pods/sidecar-containers/#resource-sharing-within-containers
    """
    if len(containers) == 1:
        return containers[0].units  # the usual case
    running = sum(container.units for container in containers if container.kind == "main")
    peak = sidecars = 0
    for container in containers:
        if container.kind == "sidecar":
            sidecars += container.units
            peak = max(peak, sidecars)
        elif container.kind == "init":
            peak = max(peak, container.units + sidecars)
    return max(running + sidecars, peak)


def count_instances(asking_containers: int) -> int:
    """How many instances of a card a pod takes where the createRuntime hook asks for each of its containers.

    One for the pod, and one for each container that asks, init containers included; a single one is held as its pod.
    """
    return 1 + asking_containers if asking_containers > 1 else 1


def _read_container_requests(containers: Sequence[ContainerSpec], resource: str) -> tuple[list[ContainerRequest], str]:
    container_requests: list[ContainerRequest] = []
    problem = ""
    requesting = take_requesting_containers(containers)
    if len(requesting) > MAX_REQUESTING_CONTAINERS:
        problem = (
            f'{requesting.pop().field}["{resource}"]: more than {MAX_REQUESTING_CONTAINERS} containers of the pod '
            "request memory; split the pod into several"
        )
    for spec in requesting:
        quantity = spec.quantity or ""
        try:
            units = parse_units(quantity)
        except ValueError as error:
            problem = problem or f'{spec.field}["{resource}"]: {error}; give a whole number of units, e.g. "4"'
            continue
        if units > MAX_UNITS:
            problem = problem or (
                f'{spec.field}["{resource}"]: {quantity[:60]!r} is {units} units, more than {MAX_UNITS}; '
                'give units of the resource, e.g. "10" for 10 GiB'
            )
        if units > 0:
            container_requests.append(ContainerRequest(spec.name, spec.kind, spec.index, units))
    return container_requests, problem


def _read_card_count(labels: Mapping[str, str]) -> tuple[int, str]:
    """The number of cards, and what is wrong with it. An unusable number counts as one card."""
    text = labels.get(well_known.COUNT_LABEL)
    if text is None:
        return 1, ""
    field = f'metadata.labels["{well_known.COUNT_LABEL}"]'
    if not (text.isascii() and text.isdecimal() and len(text) <= MAX_COUNT_DIGITS and int(text) > 0):
        return 1, f"{field}: {text!r} is not a number of cards; give 1 or more, or leave the label out"
    return int(text), ""


def _describe_uneven(container: ContainerRequest, count: int) -> str:
    field = f'metadata.labels["{well_known.COUNT_LABEL}"]'
    return f"{field}: {container.units} units of container {container.name} do not divide by {count} cards"


def _read_whole_device(labels: Mapping[str, str]) -> tuple[bool, str]:
    text = labels.get(well_known.PLACEMENT_LABEL)
    if text is None:
        return False, ""
    if text != well_known.WHOLE_DEVICE:
        return (
            False,
            f'metadata.labels["{well_known.PLACEMENT_LABEL}"]: {text!r} is not known; only "{well_known.WHOLE_DEVICE}" is',
        )
    return True, ""


def _read_wishes(annotations: Mapping[str, str], key: str) -> tuple[frozenset[str] | None, str]:
    """The names in a comma-separated list, None if there are none, and what is wrong with it."""
    text = annotations.get(key, "")
    field = f'metadata.annotations["{key}"]'
    entries = text.count(",") + 1
    if entries > MAX_WISHES:
        return None, f"{field}: {entries} entries are more than {MAX_WISHES}; give fewer, or leave the annotation out"
    wishes = frozenset(wish for part in text.split(",") if (wish := part.strip()))
    longest = max(wishes, key=lambda wish: (len(wish), wish), default="")
    if len(longest) > MAX_WISH_LENGTH:
        return None, (
            f"{field}: {longest[:60]!r}... has {len(longest)} characters, no name of a card has more than "
            f"{MAX_WISH_LENGTH}; give names as `vrampack inspect -o wide` shows them"
        )
    return wishes or None, ""
