"""A workload, the pods that it has, and why it has fewer than it wants: what its controller wrote when a pod was refused.

A pod that a quota or an admission policy refuses does not exist, so nothing can be said about it by itself.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus
from typing import TypeVar

import msgspec

from vrampack.cli.errors import MissingObjectError
from vrampack.cli.explain.schema import Explanation, WorkloadExplanation, WorkloadPodView, WorkloadView
from vrampack.kube.diagnostic_client import DiagnosticApi
from vrampack.kube.errors import RefusedError
from vrampack.kube.list_page import ListPage, decode_page
from vrampack.kube.list_pager import ListPager
from vrampack.kube.objects import FINISHED_PHASES, LocalPodObject, OwnedObjectMeta
from vrampack.kube.pod_conditions import PodCondition

CALL_SECONDS = 30.0
FAILED_CREATE = "FailedCreate"
"""The reason of the events in which controllers say that a pod was refused."""

Item = TypeVar("Item")
Owner = tuple[str, str]
"""The kind and the name."""


@dataclass(frozen=True, slots=True)
class WorkloadKind:
    """A kind whose controller creates pods."""

    name: str
    plural: str
    folder: str
    """Of its URLs."""
    spellings: tuple[str, ...]

    @property
    def group(self) -> str:
        return self.folder.split("/")[2]


REPLICA_SETS = WorkloadKind("ReplicaSet", "replicasets", "/apis/apps/v1", ("replicaset", "replicasets", "rs"))
DEPLOYMENTS = WorkloadKind("Deployment", "deployments", "/apis/apps/v1", ("deployment", "deployments", "deploy"))
STATEFUL_SETS = WorkloadKind("StatefulSet", "statefulsets", "/apis/apps/v1", ("statefulset", "statefulsets", "sts"))
JOBS = WorkloadKind("Job", "jobs", "/apis/batch/v1", ("job", "jobs"))
PODS = WorkloadKind("Pod", "pods", "/api/v1", ())
EVENTS = WorkloadKind("Event", "events", "/api/v1", ())
WORKLOAD_KINDS = {word: kind for kind in (DEPLOYMENTS, STATEFUL_SETS, JOBS, REPLICA_SETS) for word in kind.spellings}
"""By the spellings that kubectl accepts."""


class _Spec(msgspec.Struct, frozen=True):
    replicas: int | None = None
    parallelism: int | None = None
    """Of a Job, as is what follows."""
    completions: int | None = None
    suspend: bool | None = None


class _Status(msgspec.Struct, frozen=True):
    """Of a Job; other kinds' conditions say nothing here."""

    active: int | None = None
    succeeded: int | None = None
    conditions: list[PodCondition] | None = None


class _Owned(msgspec.Struct, frozen=True):
    """A workload, or what it owns."""

    metadata: OwnedObjectMeta = OwnedObjectMeta()
    spec: _Spec = _Spec()
    status: _Status = _Status()


class _Subject(msgspec.Struct, frozen=True):
    kind: str = ""
    name: str = ""


class _Event(msgspec.Struct, frozen=True, rename="camel"):
    involved_object: _Subject = _Subject()
    reason: str | None = None
    message: str | None = None
    last_timestamp: str | None = None
    event_time: str | None = None


@dataclass(frozen=True, slots=True)
class ExplainedWorkload:
    """A workload as the API server shows it now."""

    view: WorkloadView
    pods: tuple[WorkloadPodView, ...]
    """Those that have not finished, the oldest first."""
    refusal: str
    """Why its controller could not create a pod at its last attempt; empty if no event says so."""
    may_read_refusal: bool = True
    """False: the reader may not list events."""
    rest: str = ""
    """Why it wants no pod at all; empty if it does."""

    def find_waiting(self) -> str | None:
        """The name of the pod that has waited longest."""
        return next((pod.name for pod in self.pods if pod.state in ("pending", "gated")), None)


async def read_workload(api: DiagnosticApi, kind: WorkloadKind, namespace: str, name: str) -> ExplainedWorkload:
    """Raises `MissingObjectError`, `RefusedError` or `NoAnswerError`."""
    read = partial(_list_items, api, namespace=namespace)
    found = [each async for each in read(kind, _Owned, selector=f"metadata.name={name}")]
    if not found:
        raise MissingObjectError(f"there is no {kind.name} {name} in namespace {namespace}")
    owners = {(kind.name, name)}
    replica_sets = await _find_replica_sets(api, namespace, owners) if kind is DEPLOYMENTS else {}
    owners |= replica_sets.keys()
    pods = [each async for each in read(PODS, LocalPodObject) if _find_owners(each.metadata, owners)]
    pods.sort(key=lambda pod: (pod.metadata.creation_timestamp or "", pod.metadata.name))
    pods = [pod for pod in pods if pod.status.phase not in FINISHED_PHASES]
    rest = _describe_rest(found[0]) if kind is JOBS else ""
    wanted = 0 if rest else _count_wanted(found[0])
    blamed = _find_short(replica_sets, pods) or (owners if len(pods) < wanted else set())
    refusal = await _read_refusal_if_allowed(api, namespace, blamed) if blamed else ""
    view = WorkloadView(kind.name, namespace, name, wanted)
    return ExplainedWorkload(view, tuple(map(_build_pod_view, pods)), refusal or "", refusal is not None, rest)


def _describe_rest(job: _Owned) -> str:
    """Why a Job wants no pod: it has ended, or something holds it back."""
    ended = {each.type: each for each in job.status.conditions or () if each.status == "True"}
    if "Complete" in ended:
        return "it is finished"
    if "Failed" in ended:
        return f"it failed: {ended['Failed'].reason or 'no reason is given'}"
    return "it is suspended; whatever suspended it must resume it" if job.spec.suspend else ""


def _count_wanted(workload: _Owned) -> int:
    """How many pods there should be now: a Job needs no more than completions are left, and once a pod of a work queue succeeded no new one."""
    spec, status = workload.spec, workload.status
    wanted = next((each for each in (spec.replicas, spec.parallelism) if each is not None), 1)
    if spec.completions is not None:
        return max(0, min(wanted, spec.completions - (status.succeeded or 0)))
    return min(wanted, status.active or 0) if status.succeeded else wanted


def _find_short(replica_sets: Mapping[Owner, int], pods: Iterable[LocalPodObject]) -> set[Owner]:
    """Those that have fewer pods than they want: in a rollout the old ones can make up the number that the Deployment wants."""
    counts = Counter(owner for pod in pods for owner in _find_owners(pod.metadata, replica_sets))
    return {owner for owner, wanted in replica_sets.items() if counts[owner] < wanted}


async def _find_replica_sets(api: DiagnosticApi, namespace: str, owners: Collection[Owner]) -> dict[Owner, int]:
    """How many pods each wants. None where there is no such kind, as in the embedded cluster, whose Deployments own their pods."""
    try:
        listed = [each async for each in _list_items(api, REPLICA_SETS, _Owned, namespace=namespace)]
    except RefusedError as error:
        if error.status == HTTPStatus.NOT_FOUND:
            return {}
        raise
    return {
        (REPLICA_SETS.name, each.metadata.name): _count_wanted(each)
        for each in listed
        if _find_owners(each.metadata, owners)
    }


def explain_workload(workload: ExplainedWorkload, waiting: Explanation | None) -> WorkloadExplanation:
    """`waiting` explains the pod that waits."""
    view, count = workload.view, len(workload.pods)
    has = "none" if count == 0 else f"{count}"
    rest = f": {workload.rest}" if workload.rest else ""
    findings = (f"A pod could not be created: {workload.refusal}",) if workload.refusal else ()
    if not workload.may_read_refusal:
        findings = ("You may not list events, so it is not known whether a pod could not be created.",)
    return WorkloadExplanation(
        workload=view,
        headline=f"{view.kind} {view.namespace}/{view.name} wants {view.wanted} and has {has} of its pods{rest}.",
        pods=workload.pods,
        findings=findings,
        next=_suggest_step(workload) if workload.refusal or count < view.wanted else "",
        waiting=waiting,
    )


def _suggest_step(workload: ExplainedWorkload) -> str:
    if not workload.may_read_refusal:
        return f"have somebody look who may list events with the reason {FAILED_CREATE}"
    if not workload.refusal:
        return (
            "wait: no event says that a pod could not be created; if none comes, see that the cluster's controllers run"
        )
    if "exceeded quota" in workload.refusal:
        return "ask for less, delete pods that count against the quota, or have it raised"
    if "denied" in workload.refusal or "is forbidden" in workload.refusal or "is invalid" in workload.refusal:
        return "correct the pod's template as the message says"
    return "the message above says what its controller waits for"


async def _read_refusal_if_allowed(api: DiagnosticApi, namespace: str, owners: Collection[Owner]) -> str | None:
    """None if the reader may not list events."""
    try:
        return await _read_refusal(api, namespace, owners)
    except RefusedError as error:
        if error.status != HTTPStatus.FORBIDDEN:
            raise
        return None


async def _read_refusal(api: DiagnosticApi, namespace: str, owners: Collection[Owner]) -> str:
    events = [
        each
        async for each in _list_items(api, EVENTS, _Event, selector=f"reason={FAILED_CREATE}", namespace=namespace)
        if (each.involved_object.kind, each.involved_object.name) in owners
    ]
    last = max(events, key=lambda each: each.last_timestamp or each.event_time or "", default=None)
    return "" if last is None else last.message or ""


async def _list_items(
    api: DiagnosticApi, kind: WorkloadKind, item: type[Item], *, namespace: str, selector: str = ""
) -> AsyncIterator[Item]:
    decoder: msgspec.json.Decoder[ListPage[Item]] = msgspec.json.Decoder(ListPage[item])  # type: ignore[valid-type]  # at run time
    fetch = partial(
        api.read_list_page,
        f"{kind.folder}/namespaces/{namespace}/{kind.plural}",
        resource=kind.plural,
        field_selector=selector,
        timeout_seconds=CALL_SECONDS,
    )
    pages = ListPager(fetch, partial(decode_page, decoder=decoder, resource=kind.plural), kind.plural).read_pages()
    async for page in pages:
        for each in page.items or ():
            yield each


def _find_owners(metadata: OwnedObjectMeta, owners: Collection[Owner]) -> list[Owner]:
    """Which of them controls the object: one, or none."""
    controllers = ((each.kind, each.name) for each in metadata.owner_references or () if each.controller)
    return [each for each in controllers if each in owners]


def _build_pod_view(pod: LocalPodObject) -> WorkloadPodView:
    node = pod.spec.node_name or ""
    if pod.metadata.deletion_timestamp is not None:
        return WorkloadPodView(pod.metadata.name, "deleting", node)
    if node:
        return WorkloadPodView(pod.metadata.name, "bound", node)
    return WorkloadPodView(pod.metadata.name, "gated" if pod.spec.scheduling_gates else "pending", "")
