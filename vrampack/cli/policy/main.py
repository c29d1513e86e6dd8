"""`vrampack policy show` and `vrampack policy explain`: what decides, with all defaults, and how it decides now."""

from __future__ import annotations

import argparse
import asyncio
import json
from collections.abc import Sequence

import msgspec
import yaml

from extender.policy_file import PLACEMENT_FIELDS, find_policy_file
from extender.settings import ExtenderConfiguration, load_settings
from vrampack.cards.node_annotations import MAX_CARDS
from vrampack.cards.pod import Pod
from vrampack.cards.request import CardRequest, PodRequest
from vrampack.cards.units import MAX_UNITS
from vrampack.cli.arguments import CommandParser, parse_input_file, parse_number_between
from vrampack.cli.cluster_command import add_cluster_flags, choose_namespace, open_api, run_cluster_command
from vrampack.cli.explain.cluster import read_cluster
from vrampack.cli.explain.explanations import explain_pending_pod
from vrampack.cli.explain.main import (
    explain_pod,
    parse_pod_name,
    read_namespace_labels,
)
from vrampack.cli.explain.pod import ExplainedPod, PodSchedulingFields
from vrampack.cli.explain.schema import Explanation
from vrampack.cli.output import find_terminal_width, write_output
from vrampack.cli.policy.ranking import render_ranking
from vrampack.kube.client import Api
from vrampack.kube.examined_objects import ExaminedPodSpec


def main(arguments: Sequence[str]) -> int:
    """Run the action; returns the exit code: 0 done, 1 missing or not readable, 2 misuse."""
    options = build_parser().parse_args(arguments)
    return run_cluster_command(lambda: _run(options))


def build_parser() -> CommandParser:
    """The flags of this command."""
    parser = CommandParser(
        prog="vrampack policy",
        description="Show the policy, profiles and rules that decide, or how they decide about a pod or a request now.",
        epilog="Exit 0: done; 1: no such pod, or the cluster cannot be read; 2: misuse.",
    )
    actions = parser.add_subparsers(dest="action", required=True, metavar="show|explain")
    show = actions.add_parser("show", help="policy, profiles and rules as a policy file, with every default")
    explain = actions.add_parser(
        "explain", help="every node and card: fits or what is missing, and the score term by term"
    )
    for each in (show, explain):
        each.add_argument(
            "--config", type=parse_input_file, metavar="FILE", help="the extender's ExtenderConfiguration"
        )
        each.add_argument(
            "--policy", metavar="NAME|FILE", help="a preset or a PlacementPolicy to use instead of what --config says"
        )
    subject = explain.add_mutually_exclusive_group(required=True)
    subject.add_argument("--pod", metavar="[NAMESPACE/]NAME", help="a waiting pod")
    subject.add_argument(
        "--request", type=parse_number_between(1, MAX_UNITS), metavar="UNITS", help="units on each card"
    )
    explain.add_argument(
        "--count", type=parse_number_between(1, MAX_CARDS), default=1, metavar="N", help="cards of the request (1)"
    )
    explain.add_argument("--whole", action="store_true", help="the request asks for whole cards")
    explain.add_argument(
        "-n", "--namespace", metavar="NAME", help="the namespace of the pod or request (default: the context's)"
    )
    explain.add_argument("-o", "--output", choices=("table", "json", "yaml"), default="table")
    add_cluster_flags(explain)
    return parser


def format_policy(settings: ExtenderConfiguration) -> str:
    """The policy, profiles and rules in force, as a complete policy file."""
    sections = {name: settings.model_dump(mode="json")[name] for name in PLACEMENT_FIELDS}
    head = {"apiVersion": "vrampack.dev/v1", "kind": "PlacementPolicy"}
    return yaml.safe_dump(head | sections, sort_keys=False, allow_unicode=True)


async def explain_request(
    api: Api, settings: ExtenderConfiguration, namespace: str, request: CardRequest
) -> Explanation:
    """Explain a made-up pod of the namespace, without labels, with this request. Raises `RefusedError` or `NoAnswerError`."""
    cluster = await read_cluster(api, settings)
    placement = settings.settle_whole_cards(cluster.unpaid_use).build_placement()
    labels = await read_namespace_labels(api, placement, namespace)
    pod = Pod("", namespace, "(request)", request=PodRequest(request, ()), namespace_labels=labels)
    subject = ExplainedPod(placement.resolve_pod(pod), PodSchedulingFields(), ExaminedPodSpec(), {})
    settled = subject.pod.request or PodRequest(request, ())
    return explain_pending_pod(subject, settings, settled, cluster)


def _run(options: argparse.Namespace) -> None:
    policy_file = None if options.policy is None else find_policy_file(options.policy)
    settings = load_settings(options.config, {}, policy_file)
    if options.action == "show":
        write_output(format_policy(settings))
    else:
        write_output(_format_explanation(asyncio.run(_explain(options, settings)), options.output))


async def _explain(options: argparse.Namespace, settings: ExtenderConfiguration) -> Explanation:
    async with open_api(Api, options, "policy") as api:
        namespace = choose_namespace(options)
        if options.pod is not None:
            return await explain_pod(api, settings, *parse_pod_name(options.pod, options.namespace, namespace))
        request = CardRequest(options.request, options.count, whole=options.whole)
        return await explain_request(api, settings, namespace, request)


def _format_explanation(explanation: Explanation, form: str) -> str:
    if form == "table":
        return render_ranking(explanation, max_width=find_terminal_width())
    built = msgspec.to_builtins(explanation)
    return (
        json.dumps(built, indent=2) + "\n"
        if form == "json"
        else yaml.safe_dump(built, sort_keys=False, allow_unicode=True)
    )
