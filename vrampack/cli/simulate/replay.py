"""`vrampack simulate replay`: where the pods of a cluster would go under other policies or on other nodes."""

from __future__ import annotations

import argparse
import json
import shlex
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import msgspec

from extender.settings import ExtenderConfiguration, load_settings
from vrampack.cards.node_annotations import read_node
from vrampack.cards.units import DEFAULT_UNIT_MIB
from vrampack.cli.arguments import parse_input_file
from vrampack.cli.errors import MisuseError, describe_error, report_error
from vrampack.cli.explain.main import parse_pod_name
from vrampack.cli.explain.schema import Explanation
from vrampack.cli.inspect.text_columns import align_columns, replace_unprintable
from vrampack.cli.named_policy import NamedPolicy, load_named_policy
from vrampack.cli.output import write_output
from vrampack.cli.policy.ranking import render_ranking
from vrampack.cli.simulate.progress import ProgressBar
from vrampack.cli.simulate.replay_decision import DecisionWatcher
from vrampack.cli.simulate.replay_flags import OWN, build_parser
from vrampack.cli.simulate.report import Chart, ReportTable, render_report
from vrampack.config.errors import SettingsError
from vrampack.simulator.object_files import ObjectFileError, read_objects
from vrampack.simulator.replay.cluster_snapshot import ClusterSnapshot, read_cluster_snapshot
from vrampack.simulator.replay.given_arrivals import ArrivalFileError, read_arrivals
from vrampack.simulator.replay.hosts import describe_unfollowed
from vrampack.simulator.replay.node_changes import NodeChangeError, NodeChanges, change_nodes
from vrampack.simulator.replay.replay import (
    ReplayMeasures,
    ReplayPlan,
    build_plan,
    measure_as_it_is,
    replay_arrivals,
)
from vrampack.simulator.scheduling.filters import find_unchecked_field

AS_IT_IS = "as it is"
HEADING = ("POLICY", "PLACED", "UNITS", "CARDS", "EMPTY", "DENSITY", "STRANDED", "REPACK")
MAX_SHOWN_PODS = 20
"""How many unplaced pods of a policy the text lists; JSON has all."""


@dataclass(frozen=True, slots=True)
class ReplayedPolicy:
    """One row."""

    name: str
    measures: ReplayMeasures
    explanation: Explanation | None = None


def main(arguments: Sequence[str]) -> int:
    """Replay under each policy; returns the exit code."""
    options = build_parser().parse_args(arguments)
    try:
        rows = _replay_policies(options)
    except (ArrivalFileError, NodeChangeError, MisuseError, SettingsError) as error:
        return report_error(str(error), 2)
    except ObjectFileError as error:
        return report_error(str(error), 1)
    if options.report is not None:
        try:
            options.report.write_text(_render_report(["simulate", "replay", *arguments], rows), encoding="utf-8")
        except OSError as error:
            return report_error(f"--report: {describe_error(error)}", 1)
    write_output("".join(map(_format_json, rows)) if options.json else _format_text(rows))
    return 0


def _replay_policies(options: argparse.Namespace) -> list[ReplayedPolicy]:
    base = load_settings(options.config)
    objects = read_objects(options.snapshot)
    snapshot = read_cluster_snapshot(objects, base.resources.memory)
    if not snapshot.nodes:
        raise ObjectFileError(f"{options.snapshot}: no node; take it with `vrampack snapshot`")
    if options.config is None:
        base = base.model_copy(update={"unit_mib": find_common_unit(snapshot)})
    policies = [load_named_policy(text, base) for text in options.policy or ()]
    policies = policies or [NamedPolicy(base.policy.default, base)]
    watched = None if options.explain is None else parse_pod_name(options.explain, None)
    plan = _build_plan(options, snapshot, base)
    if watched is not None and watched not in {_get_pod_name(each.pod) for each in plan.arrivals}:
        raise MisuseError(f"--explain: pod {'/'.join(watched)} is not among those that are placed")
    notes = describe_unfollowed(Counter(find_unchecked_field(each.pod) for each in plan.arrivals))
    notes += [note for policy in policies for note in find_missing_labels(policy, snapshot)]
    sys.stderr.write("".join(f"vrampack: {note}\n" for note in notes))
    rows = [ReplayedPolicy(AS_IT_IS, measure_as_it_is(snapshot, base))] if options.arrivals == OWN else []
    with ProgressBar(len(policies)) as progress:
        for policy in policies:
            watcher = None if watched is None else DecisionWatcher(watched)
            measures = replay_arrivals(plan, policy.settings, watcher)
            rows.append(ReplayedPolicy(policy.name, measures, None if watcher is None else watcher.explanation))
            progress.count_run(policy.name)
    return rows


def find_common_unit(snapshot: ClusterSnapshot) -> int:
    """The unit that most nodes publish, in MiB."""
    facts = [
        read_node(
            node["metadata"]["name"], node["metadata"].get("annotations") or {}, {}, unit_mib=DEFAULT_UNIT_MIB
        ).facts
        for node in snapshot.nodes
    ]
    votes = Counter(each.unit_mib for each in facts if each.unit_mib is not None)
    return min(votes, key=lambda unit: (-votes[unit], unit), default=DEFAULT_UNIT_MIB)


def find_missing_labels(policy: NamedPolicy, snapshot: ClusterSnapshot) -> list[str]:
    """A line for each label that the policy's rules or profiles select by and nothing in the snapshot has."""
    placement = policy.settings.build_placement()
    pods = {key for pod in (*snapshot.bound, *snapshot.waiting) for key in pod["metadata"].get("labels") or ()}
    namespaces = {key for labels in snapshot.namespaces.values() for key in labels}
    missing = [("pod", key) for key in sorted(placement.list_label_keys() - pods)]
    missing += [("namespace", key) for key in sorted(placement.list_namespace_label_keys() - namespaces)]
    return [
        f"{policy.name} selects by the label {key}, and no {kind} of the snapshot has it: if the cluster's have it, "
        "take the snapshot with the same --policy"
        for kind, key in missing
    ]


def _build_plan(options: argparse.Namespace, snapshot: ClusterSnapshot, base: ExtenderConfiguration) -> ReplayPlan:
    resource, removals = base.resources.memory, [name for names in options.remove_nodes or () for name in names]
    changes = NodeChanges(options.add_nodes or (), options.model or (), removals)
    changed = change_nodes(snapshot.nodes, changes, unit_mib=base.unit_mib, resource=resource)
    given = None
    if options.arrivals != OWN:
        given = read_arrivals(parse_input_file(options.arrivals), unit_mib=base.unit_mib, resource=resource)
    return build_plan(snapshot, changed, keeps_bound=options.keep, given=given, mix=options.mix)


def _get_pod_name(pod: Mapping[str, Mapping[str, str]]) -> tuple[str, str]:
    return pod["metadata"]["namespace"], pod["metadata"]["name"]


def _format_json(row: ReplayedPolicy) -> str:
    measures = msgspec.to_builtins(row.measures)
    del measures["curve"]
    rounded = {key: round(value, 3) if isinstance(value, float) else value for key, value in measures.items()}
    explained = {} if row.explanation is None else {"explanation": msgspec.to_builtins(row.explanation)}
    return json.dumps({"policy": row.name, **rounded, **explained}) + "\n"


def _format_text(rows: Sequence[ReplayedPolicy]) -> str:
    parts = [align_columns([HEADING, *map(_build_row, rows)], right_columns=range(1, len(HEADING)))]
    for row in rows:
        if row.measures.unplaced:
            parts.append(_format_unplaced(row))
        if row.explanation is not None:
            parts.append(f"Under {row.name}:\n\n{render_ranking(row.explanation)}")
    return "\n".join(parts)


def _build_row(row: ReplayedPolicy) -> tuple[str, ...]:
    measures = row.measures
    return (
        row.name,
        f"{measures.placed}/{measures.pods}",
        f"{measures.placed_units}/{measures.asked_units}",
        f"{measures.cards_in_use:.4g}/{measures.cards}",
        f"{measures.empty_cards:.4g}",
        f"{measures.density:.1f}%",
        f"{measures.stranded_units:.4g}",
        f"{measures.repack_ratio:.2f}",
    )


def _format_unplaced(row: ReplayedPolicy) -> str:
    unplaced = row.measures.unplaced
    lines = [f"Not placed under {row.name}:", *(f"  {each.name}: {each.reason}" for each in unplaced[:MAX_SHOWN_PODS])]
    if len(unplaced) > MAX_SHOWN_PODS:
        lines.append(f"  and {len(unplaced) - MAX_SHOWN_PODS} more: --json has all.")
    return "".join(f"{replace_unprintable(line)}\n" for line in lines)


def _render_report(command: Sequence[str], rows: Sequence[ReplayedPolicy]) -> str:
    curves = {row.name: row.measures.curve for row in rows if row.name != AS_IT_IS}
    chart = Chart("Pods in their order of arrival", "units asked for", "units placed", curves)
    table = ReportTable(HEADING, [_build_row(row) for row in rows], first_number=1)
    return render_report("vrampack simulate replay", shlex.join(["vrampack", *command]), [chart], table)
