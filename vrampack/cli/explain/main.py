"""`vrampack explain pod NAMESPACE/NAME`: where a pod is, or what is missing on every card, and the next step; or of a workload."""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Sequence
from dataclasses import replace
from difflib import get_close_matches
from http import HTTPStatus

import msgspec
import yaml

from extender.settings import ExtenderConfiguration, load_settings
from vrampack.cards.profiles import PlacementSettings
from vrampack.cli.arguments import CommandParser, parse_input_file
from vrampack.cli.cluster_command import add_cluster_flags, choose_namespace, open_api, run_cluster_command
from vrampack.cli.errors import MissingObjectError, MisuseError
from vrampack.cli.explain.cluster import read_cluster, read_nodes
from vrampack.cli.explain.explanations import explain_bound_pod, explain_pending_pod, explain_without_cluster
from vrampack.cli.explain.own_pod import explain_by_own_pod
from vrampack.cli.explain.pod import ExplainedPod, PodSchedulingFields, build_explained_pod
from vrampack.cli.explain.schema import Explanation, WorkloadExplanation
from vrampack.cli.explain.text import DEFAULT_MAX_ROWS, render, render_workload
from vrampack.cli.explain.workload import WORKLOAD_KINDS, explain_workload, read_workload
from vrampack.cli.output import find_terminal_width, write_output
from vrampack.kube.client import Api
from vrampack.kube.decoding import UNDECODABLE
from vrampack.kube.diagnostic_client import DiagnosticApi
from vrampack.kube.errors import NoAnswerError, RefusedError
from vrampack.kube.examined_objects import ExaminedPod
from vrampack.kube.host_requests import read_host_request
from vrampack.kube.list_page import ListPage, decode_page
from vrampack.kube.objects import NamespaceObject, to_pod

CALL_SECONDS = 30.0
POD_KINDS = ("pod", "pods", "po")
"""Spellings of the kind that kubectl accepts."""
_NAMESPACE_PAGE = msgspec.json.Decoder(ListPage[NamespaceObject])


class MissingPodError(MissingObjectError):
    """There is no such pod."""


def main(arguments: Sequence[str]) -> int:
    """Explain one pod; returns the exit code: 0 explained, 1 missing or not readable, 2 misuse."""
    made = build_parser()
    options = made.parse_args(arguments)
    _split_kind(made, options)
    return run_cluster_command(
        lambda: _run(options),
        needed_rights="explain needs get of the pod, and to show cards list of nodes and of all pods (and of namespaces, where rules name "
        "their labels; and of the workload, its ReplicaSets and events)",
    )


def build_parser() -> CommandParser:
    """The flags of this command."""
    parser = CommandParser(
        prog="vrampack explain",
        description="Say why a pod is pending: node by node and card by card what is missing, and what to do next.",
        epilog="Exit 0: explained; 1: no such pod, or the cluster cannot be read; 2: misuse.",
    )
    parser.add_argument(
        "kind", metavar="KIND", help="pod, deployment, statefulset, replicaset or job; `pod/NAME` says it in one word"
    )
    parser.add_argument("name", nargs="?", metavar="[NAMESPACE/]NAME")
    parser.add_argument("-n", "--namespace", metavar="NAME", help="the pod's namespace (default: the context's)")
    parser.add_argument("-o", "--output", choices=("table", "json", "yaml"), default="table")
    parser.add_argument(
        "--all", action="store_true", help=f"show every row of the table, not only the nearest {DEFAULT_MAX_ROWS}"
    )
    parser.add_argument(
        "--config", type=parse_input_file, metavar="FILE", help="the extender's ExtenderConfiguration, if it has one"
    )
    add_cluster_flags(parser)
    return parser


def _run(options: argparse.Namespace) -> None:
    settings = load_settings(options.config)
    is_pod = options.kind in POD_KINDS
    namespace, name = parse_pod_name(options.name, options.namespace, choose_namespace(options), is_pod=is_pod)
    explanation = asyncio.run(_explain(options, settings, namespace, name))
    write_output(_format_explanation(explanation, options.output, is_all=options.all))


async def _explain(
    options: argparse.Namespace, settings: ExtenderConfiguration, namespace: str, name: str
) -> Explanation | WorkloadExplanation:
    async with open_api(DiagnosticApi, options, "explain") as api:
        if options.kind in POD_KINDS:
            return await explain_pod(api, settings, namespace, name)
        workload = await read_workload(api, WORKLOAD_KINDS[options.kind], namespace, name)
        return explain_workload(workload, await _explain_waiting(api, settings, namespace, workload.find_waiting()))


async def _explain_waiting(
    api: Api, settings: ExtenderConfiguration, namespace: str, waiting: str | None
) -> Explanation | None:
    """Also none if the pod is gone since it was listed: the workload is explained without it."""
    try:
        return None if waiting is None else await explain_pod(api, settings, namespace, waiting)
    except MissingPodError:
        return None


async def explain_pod(api: Api, settings: ExtenderConfiguration, namespace: str, name: str) -> Explanation:
    """Read what is needed and explain. Raises `MissingPodError`, `RefusedError` or `NoAnswerError`.

    A reader who may not list the cluster is told what is written on the pod.
    """
    subject = await read_explained_pod(api, settings, namespace, name)
    try:
        return await _explain_by_cluster(api, settings, subject)
    except RefusedError as error:
        if error.status != HTTPStatus.FORBIDDEN:
            raise
        return explain_by_own_pod(subject, settings)


async def _explain_by_cluster(api: Api, settings: ExtenderConfiguration, subject: ExplainedPod) -> Explanation:
    cluster = None
    if subject.needs_cluster and not subject.knows_rules:
        return explain_by_own_pod(subject, settings)
    if subject.needs_cluster:
        cluster = await read_cluster(api, settings)
        settled = settings.settle_whole_cards(cluster.unpaid_use)
        subject = await read_explained_pod(
            api, settled, subject.pod.namespace, subject.pod.name
        )  # after the lists, which may have shown it bound
    if subject.state == "bound":
        nodes = await read_nodes(api, settings, [])
        seen = nodes.get(subject.pod.node_name)
        return explain_bound_pod(subject, settings, seen.facts if seen is not None else None)
    if cluster is None or subject.pod.request is None or not subject.needs_cluster:
        return explain_without_cluster(subject, settings)
    return explain_pending_pod(subject, settings, subject.pod.request, cluster)


async def read_explained_pod(api: Api, settings: ExtenderConfiguration, namespace: str, name: str) -> ExplainedPod:
    """The pod as it is now. Raises `MissingPodError`, `RefusedError` or `NoAnswerError`."""
    body = await api.get_pod_bytes(namespace, name, timeout_seconds=CALL_SECONDS)
    if body is None:
        raise MissingPodError(f"there is no pod {name} in namespace {namespace}")
    labels = await _read_labels_if_allowed(api, settings, namespace)
    try:
        return replace(decode_explained_pod(body, settings, labels or ()), knows_rules=labels is not None)
    except UNDECODABLE as error:
        raise NoAnswerError(f"get pod {namespace}/{name}: {error}") from error


async def _read_labels_if_allowed(
    api: Api, settings: ExtenderConfiguration, namespace: str
) -> tuple[tuple[str, str], ...] | None:
    """None if the reader may not list namespaces."""
    try:
        return await read_namespace_labels(api, settings.build_placement(), namespace)
    except RefusedError as error:
        if error.status != HTTPStatus.FORBIDDEN:
            raise
        return None


def decode_explained_pod(
    body: bytes, settings: ExtenderConfiguration, namespace_labels: tuple[tuple[str, str], ...]
) -> ExplainedPod:
    """Decode the pod, with the rules and the profile that apply to it. Raises one of `UNDECODABLE`."""
    pod = msgspec.json.decode(body, type=ExaminedPod)
    scheduling_fields = msgspec.json.decode(body, type=PodSchedulingFields)
    placement = settings.build_placement()
    host = read_host_request(pod.spec) if settings.select_policies().reads_hosts else None
    read = to_pod(pod, resource=settings.resources.memory, label_keys=placement.list_label_keys(), host=host)
    read = replace(read, namespace_labels=namespace_labels)
    return build_explained_pod(placement.resolve_pod(read), scheduling_fields, pod)


async def read_namespace_labels(api: Api, placement: PlacementSettings, namespace: str) -> tuple[tuple[str, str], ...]:
    """The namespace's labels that rules or profiles name; makes no call if they name none."""
    keys = placement.list_namespace_label_keys()
    if not keys:
        return ()
    body = await api.list_page("namespaces", limit=1, field_selector=f"metadata.name={namespace}")
    items = decode_page(body, _NAMESPACE_PAGE, "namespaces").items
    if not items:
        raise NoAnswerError(f"list namespaces: there is no {namespace}")
    labels = items[0].metadata.labels or {}
    return tuple(sorted((key, labels[key]) for key in keys & labels.keys()))


def _split_kind(parser: CommandParser, options: argparse.Namespace) -> None:
    """Of `KIND/NAME`; ends the process if this is neither that nor `KIND NAME`."""
    given, slash, name = options.kind.partition("/")
    kind = _drop_group(given)
    if (kind not in POD_KINDS and kind not in WORKLOAD_KINDS) or (slash and options.name is not None):
        near = get_close_matches(kind, (*POD_KINDS, *WORKLOAD_KINDS), n=1) if name or options.name else []
        named = f"{near[0]} {options.name or name}" if near else f"pod {options.name or options.kind}"
        parser.error(f"only pods and workloads can be explained; write: vrampack explain {named}")
    if not name and options.name is None:
        parser.error(f"which {kind}?")
    options.kind, options.name = kind, options.name or name


def _drop_group(kind: str) -> str:
    """`deployment` of `deployment.apps`, as kubectl prints it; a group that is not the kind's stays."""
    word, _, group = kind.partition(".")
    return word if word in WORKLOAD_KINDS and group == WORKLOAD_KINDS[word].group else kind


def parse_pod_name(
    text: str, namespace: str | None, own_namespace: str = "default", *, is_pod: bool = True
) -> tuple[str, str]:
    """Namespace and name, of a pod also of `pod/NAME` as kubectl prints it; `own_namespace` where neither names one. Raises `MisuseError`."""
    kind, _, rest = text.partition("/")
    before, slash, name = (rest if is_pod and rest and kind in POD_KINDS else text).rpartition("/")
    if not name or "/" in before or (slash and not before):
        raise MisuseError(
            f"{text!r} is not the name of a {'pod' if is_pod else 'workload'}; give NAME or NAMESPACE/NAME"
        )
    if before and namespace and before != namespace:
        raise MisuseError(f"{text!r} is not in namespace {namespace}; give one of the two")
    return before or namespace or own_namespace, name


def _format_explanation(explanation: Explanation | WorkloadExplanation, form: str, *, is_all: bool) -> str:
    if form == "table":
        max_rows, max_width = None if is_all else DEFAULT_MAX_ROWS, find_terminal_width()
        if isinstance(explanation, WorkloadExplanation):
            return render_workload(explanation, max_rows=max_rows, max_width=max_width)
        return render(explanation, max_rows=max_rows, max_width=max_width)
    if form == "json":
        return msgspec.json.format(msgspec.json.encode(explanation), indent=2).decode() + "\n"
    return yaml.safe_dump(msgspec.to_builtins(explanation), sort_keys=False, allow_unicode=True)
