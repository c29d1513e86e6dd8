"""`vrampack card drain`: cordons cards and says what their pods would need. It does not move pods."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from extender.settings import load_settings
from vrampack.cli.card.disruption_budgets import DisruptionBudget, list_budgets
from vrampack.cli.card.drain_plan import DrainedPod, PodOwnership, describe_step, plan_drain, read_ownership
from vrampack.cli.inspect.text_columns import align_columns, replace_unprintable
from vrampack.cli.simulate.replay import find_common_unit
from vrampack.cli.snapshot import build_scope, read_trimmed_cluster
from vrampack.kube.diagnostic_client import DiagnosticApi
from vrampack.kube.errors import NoAnswerError, RefusedError
from vrampack.simulator.replay.cluster_snapshot import read_cluster_snapshot
from vrampack.simulator.resource_kinds import Object

CALL_SECONDS = 30.0
HEADINGS = ("NAMESPACE", "POD", "CARD", "UNITS", "CONTROLLER", "BUDGET", "ROOM ON")
MOVES_NOTHING = (
    "vrampack moves no pods: move them yourself, one at a time; `vrampack card drain` again shows what is left."
)


@dataclass(frozen=True, slots=True)
class DrainReport:
    """The result to print."""

    node: str
    cards: tuple[str, ...]
    cordoned: tuple[str, ...]
    """A line for each cordoned card; none in a dry run."""
    pods: tuple[DrainedPod, ...]
    notes: tuple[str, ...]


async def read_drain_report(
    api: DiagnosticApi, node_name: str, uuids: Sequence[str], cordoned: Sequence[str], config: Path | None
) -> DrainReport:
    """List the cluster and plan the drain. Raises `RefusedError`, `NoAnswerError`, `SettingsError` or `ObjectFileError`."""
    settings = load_settings(config)
    scope = build_scope(settings, [settings])
    owners: dict[tuple[str, str], PodOwnership] = {}

    def note_owner(pod: Object) -> None:
        if (pod.get("spec") or {}).get("nodeName") == node_name:
            owners[pod["metadata"].get("namespace", "default"), pod["metadata"]["name"]] = read_ownership(pod)

    trimmed = await read_trimmed_cluster(api, scope, on_pod=note_owner)
    snapshot = read_cluster_snapshot(trimmed.objects, settings.resources.memory)
    if config is None:
        settings = settings.model_copy(update={"unit_mib": find_common_unit(snapshot)})
    budgets, notes = await _read_budgets(api)
    planned = plan_drain(snapshot, settings, node_name=node_name, uuids=uuids, owners=owners, budgets=budgets)
    return DrainReport(node_name, tuple(uuids), tuple(cordoned), tuple(planned), (*notes, *trimmed.notes))


def format_drain_json(report: DrainReport) -> str:
    """The whole report as JSON, with the step for each pod."""
    pods = [{**asdict(pod), "step": describe_step(pod)} for pod in report.pods]
    return json.dumps({**asdict(report), "pods": pods}, indent=2) + "\n"


def format_drain_text(report: DrainReport) -> str:
    """The report as text: what was cordoned, the pods as a table, and what to do about each."""
    lines = [f"{line}\n" for line in report.cordoned]
    lines += [f"note: {replace_unprintable(note)}\n" for note in report.notes]
    cards = f"{len(report.cards)} card{'' if len(report.cards) == 1 else 's'} of {report.node}"
    if not report.pods:
        return "".join([*lines, f"No pod holds memory of {cards}: there is nothing to move.\n"])
    table = align_columns([HEADINGS, *map(_build_row, report.pods)], right_columns=(3,))
    steps = [f"  {pod.namespace}/{pod.name}: {describe_step(pod)}\n" for pod in report.pods]
    unplaced = [
        f"  {pod.namespace}/{pod.name}: {replace_unprintable(pod.obstacle)}\n" for pod in report.pods if pod.obstacle
    ]
    reasons = ["\nWithout room elsewhere:\n", *unplaced] if unplaced else []
    return "".join([*lines, f"Pods on {cards}:\n\n", table, *reasons, "\nTo do:\n", *steps, f"\n{MOVES_NOTHING}\n"])


async def _read_budgets(api: DiagnosticApi) -> tuple[list[DisruptionBudget], list[str]]:
    try:
        return await list_budgets(api, timeout_seconds=CALL_SECONDS), []
    except (RefusedError, NoAnswerError) as error:
        return [], [f"PodDisruptionBudgets are not known: {error}"]


def _build_row(pod: DrainedPod) -> tuple[str, ...]:
    cards = ",".join(map(str, pod.cards)) or "?"
    room, budgets = pod.target or "-", ", ".join(pod.budgets) or "-"
    return pod.namespace, pod.name, cards, str(pod.units), pod.controller or "-", budgets, room
