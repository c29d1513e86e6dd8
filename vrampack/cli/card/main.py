"""`vrampack card`: `list` shows cards, `cordon` keeps new pods off one, `uncordon` lets them on it, `heal` confirms a repair.

`drain` cordons and says what the pods of a card would need; it does not move them.
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Sequence
from http import HTTPStatus

from vrampack.cards import well_known
from vrampack.cards.node import NodeFacts
from vrampack.cards.units import DEFAULT_UNIT_MIB
from vrampack.cli.arguments import CommandParser, parse_input_file, parse_node_name
from vrampack.cli.card.cordons import (
    CordonableCard,
    UnknownCardError,
    build_cordon_patch,
    find_card,
    is_annotatable_uuid,
    list_cards,
    read_cordoned_uuids,
)
from vrampack.cli.card.drain import format_drain_json, format_drain_text, read_drain_report
from vrampack.cli.card.heals import find_healable_uuid, plan_heal
from vrampack.cli.card.nodes import read_nodes
from vrampack.cli.card.table import format_json, format_table
from vrampack.cli.cluster_command import add_cluster_flags, open_api, run_cluster_command
from vrampack.cli.errors import MissingObjectError
from vrampack.cli.output import find_terminal_width, write_output
from vrampack.kube.client import Api
from vrampack.kube.diagnostic_client import DiagnosticApi
from vrampack.kube.errors import RefusedError
from vrampack.kube.objects import NodeObject, to_node
from vrampack.simulator.object_files import ObjectFileError

CALL_SECONDS = 30.0
MAX_ATTEMPTS = 5
"""A node changes every few seconds when its agent or kubelet writes; five conflicts in a row are no coincidence."""


def main(arguments: Sequence[str]) -> int:
    """Run an action; returns the exit code: 0 done or already so, 1 no such card or not allowed, 2 misuse."""
    made = build_parser()
    options = made.parse_args(arguments)
    if options.action == "drain" and not options.node:
        made.error("drain needs a node")
    if options.action in ("cordon", "uncordon", "heal") and not (options.node and options.card):
        made.error(f"{options.action} needs a node and a card")
    if options.action == "list" and options.card:
        made.error("list takes at most one node")
    return run_cluster_command(
        lambda: write_output(asyncio.run(_run(options))),
        needed_rights="card needs get and list of nodes, patch to cordon and heal, and list of pods to drain",
    )


def build_parser() -> CommandParser:
    """The flags of this command."""
    made = CommandParser(
        prog="vrampack card",
        description="Take one card of a node out of use, put it back, or confirm that it is repaired. Pods on it stay; "
        "`drain` says what to do about them.",
        epilog="Exit 0: done, or already so; 1: no such card, or not permitted; 2: misuse.",
    )
    made.add_argument("action", choices=("list", "cordon", "uncordon", "drain", "heal"))
    made.add_argument(
        "node", nargs="?", type=parse_node_name, metavar="NODE", help="the node; `list` without it shows all"
    )
    made.add_argument(
        "card",
        nargs="?",
        metavar="CARD",
        help="the card's uuid, the beginning of it, or its index; `drain` without it drains all",
    )
    made.add_argument(
        "--force",
        action="store_true",
        help="`cordon`: accept a uuid that the node does not publish; `heal`: override what the driver says",
    )
    made.add_argument(
        "-o", "--output", choices=("table", "json"), default="table", help="the format of `list` and `drain`"
    )
    made.add_argument("--dry-run", action="store_true", help="`drain` without cordoning")
    made.add_argument(
        "--config", type=parse_input_file, metavar="FILE", help="the extender's ExtenderConfiguration, for `drain`"
    )
    add_cluster_flags(made)
    return made


async def _run(options: argparse.Namespace) -> str:
    async with open_api(DiagnosticApi, options, "card") as api:
        if options.action == "list":
            nodes = await read_nodes(api, options.node, timeout_seconds=CALL_SECONDS)
            return _format_cards(
                [state for node in nodes for state in list_cards(node, _read_facts(node).cards)], options.output
            )
        if options.action == "drain":
            return await _drain(api, options)
        if options.action == "heal":
            return await _heal(api, options.node, options.card, is_forced=options.force)
        return await _change_cordon(api, options.node, options.card, options.action, is_forced=options.force)


async def _drain(api: DiagnosticApi, options: argparse.Namespace) -> str:
    """Cordon the card, or every card of the node, and say what the pods there need."""
    (node,) = await read_nodes(api, options.node, timeout_seconds=CALL_SECONDS)
    if options.card:
        uuids = [_resolve_uuid(node, options.card, is_forced=False)]
    else:
        uuids = [card.uuid for card in list_cards(node, _read_facts(node).cards)]
    if not uuids:
        raise UnknownCardError(f"node {options.node} has no cards with a uuid")
    cordoned = [
        (await _change_cordon(api, options.node, uuid, "cordon", is_forced=False)).rstrip("\n")
        for uuid in ([] if options.dry_run else uuids)
    ]
    try:
        report = await read_drain_report(api, options.node, uuids, cordoned, options.config)
    except ObjectFileError as error:
        raise MissingObjectError(str(error)) from error
    return format_drain_json(report) if options.output == "json" else format_drain_text(report)


async def _heal(api: Api, node_name: str, card_name: str, *, is_forced: bool) -> str:
    """End the verdict on one card; tries again if the node changes between read and write."""
    tries = 0
    while True:
        tries += 1
        (node,) = await read_nodes(api, node_name, timeout_seconds=CALL_SECONDS)
        uuid = find_healable_uuid(node, card_name, list_cards(node, _read_facts(node).cards))
        healing = plan_heal(node, uuid, is_forced=is_forced)
        if healing.patch is None:
            return healing.text
        try:
            await api.patch_node(node_name, healing.patch, timeout_seconds=CALL_SECONDS)
        except RefusedError as error:
            if error.status != HTTPStatus.CONFLICT or tries == MAX_ATTEMPTS:
                raise
        else:
            return healing.text


async def _change_cordon(api: Api, node_name: str, card_name: str, action: str, *, is_forced: bool) -> str:
    """Cordon or uncordon; tries again if the node changes meanwhile, so that two operators do not undo each other."""
    tries = 0
    while True:
        tries += 1
        (node,) = await read_nodes(api, node_name, timeout_seconds=CALL_SECONDS)
        uuid = _resolve_uuid(node, card_name, is_forced=is_forced and action == "cordon")
        others = tuple(each for each in read_cordoned_uuids(node) if each != uuid)
        wanted = (*others, uuid) if action == "cordon" else others
        if set(wanted) == set(read_cordoned_uuids(node)):
            return f"node/{node_name} card {uuid} already {action}ed\n"
        try:
            await api.patch_node(node_name, build_cordon_patch(node, wanted), timeout_seconds=CALL_SECONDS)
        except RefusedError as error:
            if error.status != HTTPStatus.CONFLICT or tries == MAX_ATTEMPTS:
                raise
        else:
            return f"node/{node_name} card {uuid} {action}ed\n"


def _resolve_uuid(node: NodeObject, named: str, *, is_forced: bool) -> str:
    """The uuid of the named card."""
    facts = _read_facts(node)
    try:
        return find_card(named, list_cards(node, facts.cards)).uuid
    except UnknownCardError as error:
        if is_forced and is_annotatable_uuid(named):
            return named
        why = f" ({facts.problem})" if facts.problem else ""
        raise UnknownCardError(f"node {node.metadata.name}: {error}{why}") from error


def _read_facts(node: NodeObject) -> NodeFacts:
    resources = {"resource": well_known.MEMORY_RESOURCE, "count_resource": well_known.COUNT_RESOURCE}
    return to_node(node, unit_mib=DEFAULT_UNIT_MIB, **resources).facts


def _format_cards(cards: Sequence[CordonableCard], form: str) -> str:
    return format_json(cards) if form == "json" else format_table(cards, max_width=find_terminal_width())
