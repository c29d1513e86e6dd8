"""`vrampack snapshot`: everything that the packing of a live cluster depends on, and nothing else, in one file."""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from extender.settings import ExtenderConfiguration, load_settings
from vrampack.cli.arguments import CommandParser, parse_input_file
from vrampack.cli.cluster_command import add_cluster_flags, open_api, run_cluster_command
from vrampack.cli.explain.cluster import list_items
from vrampack.cli.named_policy import load_named_policy
from vrampack.cli.output import write_output
from vrampack.kube.api_caller import Resource
from vrampack.kube.client import Api
from vrampack.kube.decoding import UNDECODABLE
from vrampack.kube.errors import NoAnswerError, ResourceExpiredError
from vrampack.simulator.replay.anonymity import rename_objects
from vrampack.simulator.replay.trimming import ClusterTrimmer, SnapshotScope, TrimmedCluster
from vrampack.simulator.resource_kinds import Object


def main(arguments: Sequence[str]) -> int:
    """Take one snapshot; returns the exit code: 0 written, 1 not readable or not writable, 2 misuse."""
    options = build_parser().parse_args(arguments)
    return run_cluster_command(
        lambda: _run(options),
        needed_rights="a snapshot needs list of nodes, pods and, for rules by their labels, namespaces",
    )


def build_parser() -> CommandParser:
    """The flags of this command."""
    made = CommandParser(
        prog="vrampack snapshot",
        description="Write the nodes with cards and the pods that matter to them as a v1 List, without anything that placement "
        "does not read: for `vrampack simulate replay` and `vrampack serve --embedded`.",
        epilog="Exit 0: written; 1: the cluster cannot be read, or the file not written; 2: misuse.",
    )
    made.add_argument("--output", type=Path, metavar="FILE", help="the file to write (default: stdout)")
    made.add_argument(
        "--anonymous", action="store_true", help="replace the names of namespaces, nodes and pods, in the same order"
    )
    made.add_argument(
        "--config", type=parse_input_file, metavar="FILE", help="the extender's ExtenderConfiguration, if it has one"
    )
    made.add_argument(
        "--policy",
        action="append",
        metavar="NAME|FILE",
        help="also keep the labels that its rules and profiles name; may be given several times",
    )
    add_cluster_flags(made)
    return made


def format_snapshot(objects: Sequence[Object]) -> str:
    """A v1 List as JSON, which is YAML too, with one object a line, so that snapshots can be compared."""
    lines = ",\n".join(json.dumps(each, separators=(",", ":"), ensure_ascii=False) for each in objects)
    return f'{{"apiVersion":"v1","kind":"List","metadata":{{}},"items":[\n{lines}\n]}}\n'


def build_scope(base: ExtenderConfiguration, all_settings: Sequence[ExtenderConfiguration]) -> SnapshotScope:
    """The scope of a snapshot: what placement reads under any of these settings."""
    placements = [each.build_placement() for each in all_settings]
    return SnapshotScope(
        base.resources.memory,
        base.resources.count,
        frozenset().union(*(each.list_label_keys() for each in placements)),
        frozenset().union(*(each.list_namespace_label_keys() for each in placements)),
    )


def _run(options: argparse.Namespace) -> None:
    base = load_settings(options.config)
    policies = [load_named_policy(text, base).settings for text in options.policy or ()]
    taken = asyncio.run(_take_snapshot(options, build_scope(base, [base, *policies])))
    objects = rename_objects(taken.objects) if options.anonymous else taken.objects
    _write_snapshot(options.output, format_snapshot(objects))
    sys.stderr.write("".join(f"vrampack: {line}\n" for line in taken.notes))


async def _take_snapshot(options: argparse.Namespace, scope: SnapshotScope) -> TrimmedCluster:
    async with open_api(Api, options, "snapshot") as api:
        return await read_trimmed_cluster(api, scope)


async def read_trimmed_cluster(
    api: Api, scope: SnapshotScope, *, on_pod: Callable[[Object], None] | None = None
) -> TrimmedCluster:
    """List the cluster, and trim each object at once. `on_pod` sees each pod whole; it may see one twice.

    Raises `RefusedError` or `NoAnswerError`.
    """
    trimmer = ClusterTrimmer(scope)

    def add_pod(pod: Object) -> None:
        trimmer.add_pod(pod)
        if on_pod is not None:
            on_pod(pod)

    await _read_objects(api, "nodes", trimmer.add_node)
    try:
        await _read_objects(api, "pods", add_pod)
    except ResourceExpiredError:  # the list took more than five minutes: start again once
        trimmer.start_pods()
        await _read_objects(api, "pods", add_pod)
    if scope.namespace_label_keys:
        await _read_objects(api, "namespaces", trimmer.add_namespace)
    return trimmer.build_cluster()


async def _read_objects(api: Api, resource: Resource, add: Callable[[Object], None]) -> None:
    try:
        async for raw in list_items(api, resource):
            add(msgspec.json.decode(raw))
    except UNDECODABLE as error:
        raise NoAnswerError(f"list {resource}: not a list of objects: {error}") from error


def _write_snapshot(file: Path | None, text: str) -> None:
    if file is None:
        write_output(text)
    else:
        file.write_text(text, encoding="utf-8")
