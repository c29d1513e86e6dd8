"""The demo's output: the same values as text for people and as JSON for programs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from vrampack.cli.demo.objects import CardModel, DemoWorkload
from vrampack.cli.demo.stages import DemoStage
from vrampack.cli.inspect.table_views import format_details, format_summary


def format_empty_stage(stage: DemoStage, card: CardModel) -> str:
    return _format_step(
        f"One node, one card: {card.memory_mib} MiB are {card.units} units of aliyun.com/gpu-mem, all free.",
        _format_command("kubectl inspect cgpu", format_summary(stage.cluster)),
    )


def format_app_stage(stage: DemoStage, card: CardModel, app: DemoWorkload) -> str:
    lines = [_format_command("kubectl inspect cgpu -d", format_details(stage.cluster))]
    if stage.placed:
        limit = stage.placed[0].limit_mib
        lines.append(
            f"Each container may use {limit} MiB: {app.units_per_pod} of the {card.units} units of {card.memory_mib} MiB.\n"
        )
    lines += [f"pod {pod.pod_name} waits for {pod.units} units: {pod.reason}\n" for pod in stage.pending]
    return _format_step(
        f"StatefulSet {app.name}: {app.replicas} pods, each limited to {app.units_per_pod} units, all at once ({stage.elapsed_ms:.0f} ms).",
        "".join(lines),
    )


def format_full_stage(explanation: str, units: int) -> str:
    return _format_step(
        f"One more pod asks for {units} units. The card has {units - 1} left.",
        _format_command("vrampack explain pod default/app-late", explanation),
    )


def format_freed_stage(stage: DemoStage, app: DemoWorkload) -> str:
    (placed,) = stage.placed
    return _format_step(
        f"StatefulSet {app.name} is deleted. The waiting pod has its place {stage.elapsed_ms:.0f} ms later.",
        f"pod {placed.pod_name} is on {placed.node} {_format_cards(placed.units_by_card)}\n\n"
        + _format_command("kubectl inspect cgpu", format_summary(stage.cluster)),
    )


def format_mixed_stage(stage: DemoStage, jobs: Sequence[DemoWorkload]) -> str:
    pods = len(stage.placed)
    alone = sum(job.replicas * job.cards_per_pod for job in jobs)
    asked = ", ".join(f"{job.replicas} x {job.name} {job.units_per_pod}" for job in jobs)
    waiting = "".join(f"pod {pod.pod_name} waits for {pod.units} units: {pod.reason}\n" for pod in stage.pending)
    return _format_step(
        f"A mixed cluster: {stage.total_card_count} cards of 15, 16, 24 and 80 units, {pods + len(stage.pending)} pods.",
        f"{asked}\n\n"
        + _format_command("kubectl inspect cgpu", format_summary(stage.cluster))
        + waiting
        + f"{pods} pods run on {stage.used_card_count} cards, placed in {stage.elapsed_ms / 1000:.1f} s; "
        + f"empty, for large ones: {stage.total_card_count - stage.used_card_count} of {stage.total_card_count}.\n"
        + f"With a card for each of them (nvidia.com/gpu) they need {alone} cards: {alone - stage.total_card_count} are missing.\n",
    )


@dataclass(frozen=True, slots=True)
class ClusterAccess:
    """How to reach what runs."""

    api_url: str
    extender_url: str
    metrics_url: str
    kubeconfig: Path


def format_access(access: ClusterAccess) -> str:
    """How to use what `--serve` keeps running."""
    return _format_step(
        "It stays up until Ctrl-C.",
        f"API server  {access.api_url}\n"
        f"extender    {access.extender_url}/inspect\n"
        f"metrics     {access.metrics_url}\n\n"
        f"export KUBECONFIG={access.kubeconfig}\n"
        "kubectl get nodes,pods -o wide\n"
        "kubectl describe pod app-late\n"
        "kubectl delete statefulset app-3g-v1   # and app-late has its place\n"
        "vrampack inspect -d\n",
    )


def build_document(
    access: ClusterAccess, card: CardModel, app: DemoWorkload, stages: Sequence[DemoStage]
) -> dict[str, object]:
    """The JSON document: everything that was read, step by step."""
    return {
        "apiVersion": "vrampack.dev/v1",
        "kind": "Demo",
        "api": access.api_url,
        "extender": access.extender_url,
        "metrics": access.metrics_url,
        "kubeconfig": str(access.kubeconfig),
        "card": {"model": card.model, "memoryMiB": card.memory_mib, "units": card.units},
        "app": {"name": app.name, "replicas": app.replicas, "gpuMem": app.units_per_pod},
        "steps": [_build_step(stage) for stage in stages],
    }


def _build_step(stage: DemoStage) -> dict[str, object]:
    cluster = stage.cluster
    return {
        "step": stage.name,
        "tookMs": round(stage.elapsed_ms, 1),
        "usedGPU": cluster.used_units,
        "totalGPU": cluster.total_units,
        "placed": [
            {
                "pod": each.pod_name,
                "node": each.node,
                "cards": [{"id": index, "usedGPU": units} for index, units in sorted(each.units_by_card.items())],
                "limitMiB": each.limit_mib,
            }
            for each in stage.placed
        ],
        "waiting": [{"pod": each.pod_name, "gpuMem": each.units, "reason": each.reason} for each in stage.pending],
    }


def _format_step(title: str, body: str) -> str:
    return f"== {title}\n\n{body.rstrip()}\n"


def _format_command(command: str, output: str) -> str:
    return f"$ {command}\n{output.rstrip()}\n\n"


def _format_cards(cards: Mapping[int, int]) -> str:
    return ", ".join(f"GPU{index} ({units} units)" for index, units in sorted(cards.items()))
