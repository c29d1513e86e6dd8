"""The demo's words: the same values as text for people and as JSON for programs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from vrampack.cli.demo.objects import CardKind, Job
from vrampack.cli.demo.reading import Stage
from vrampack.cli.inspect.render import details, summary


def empty_text(stage: Stage, card: CardKind) -> str:
    return _step(
        f"One node, one card: {card.memory_mib} MiB are {card.units} units of aliyun.com/gpu-mem. Nobody uses it yet.",
        _shown("kubectl inspect cgpu", summary(stage.cluster)),
    )


def app_text(stage: Stage, card: CardKind, app: Job) -> str:
    lines = [_shown("kubectl inspect cgpu -d", details(stage.cluster))]
    if stage.placed:
        limit = stage.placed[0].limit_mib
        lines.append(
            f"Each container may use {limit} MiB: {app.units} of the {card.units} units of {card.memory_mib} MiB.\n"
        )
    lines += [f"pod {pod.pod} waits for {pod.units} units: {pod.reason}\n" for pod in stage.waiting]
    return _step(
        f"StatefulSet {app.name}: {app.replicas} pods, each limited to {app.units} units, all at once ({stage.took_ms:.0f} ms).",
        "".join(lines),
    )


def waiting_text(explanation: str, units: int) -> str:
    return _step(
        f"One more pod asks {units} units. The card has {units - 1} left.",
        _shown("vrampack explain pod default/app-late", explanation),
    )


def after_the_app_is_gone(stage: Stage, app: Job) -> str:
    (placed,) = stage.placed
    return _step(
        f"StatefulSet {app.name} is deleted. The waiting pod has its place {stage.took_ms:.0f} ms later.",
        f"pod {placed.pod} is on {placed.node} {_cards(placed.cards)}\n\n"
        + _shown("kubectl inspect cgpu", summary(stage.cluster)),
    )


def mixed_text(stage: Stage, jobs: Sequence[Job]) -> str:
    pods = len(stage.placed)
    alone = sum(job.replicas * job.cards for job in jobs)
    asked = ", ".join(f"{job.replicas} x {job.name} {job.units}" for job in jobs)
    waiting = "".join(f"pod {pod.pod} waits for {pod.units} units: {pod.reason}\n" for pod in stage.waiting)
    return _step(
        f"A mixed cluster: {stage.total_cards} cards of 15, 16, 24 and 80 units, {pods + len(stage.waiting)} pods.",
        f"{asked}\n\n"
        + _shown("kubectl inspect cgpu", summary(stage.cluster))
        + waiting
        + f"{pods} pods run on {stage.used_cards} cards, placed in {stage.took_ms / 1000:.1f} s; "
        + f"empty, for large ones: {stage.total_cards - stage.used_cards} of {stage.total_cards}.\n"
        + f"With a card for each of them (nvidia.com/gpu) they need {alone}: {alone - stage.total_cards} would wait.\n",
    )


@dataclass(frozen=True, slots=True)
class Access:
    """How to reach what runs."""

    api_url: str
    extender_url: str
    metrics_url: str
    kubeconfig: Path


def invitation(access: Access) -> str:
    """What to do with what `--serve` keeps up."""
    return _step(
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


def as_json(access: Access, card: CardKind, app: Job, stages: Sequence[Stage]) -> dict[str, object]:
    """Everything that was read, step by step."""
    return {
        "apiVersion": "vrampack.dev/v1",
        "kind": "Demo",
        "api": access.api_url,
        "extender": access.extender_url,
        "metrics": access.metrics_url,
        "kubeconfig": str(access.kubeconfig),
        "card": {"model": card.model, "memoryMiB": card.memory_mib, "units": card.units},
        "app": {"name": app.name, "replicas": app.replicas, "gpuMem": app.units},
        "steps": [_stage_json(stage) for stage in stages],
    }


def _stage_json(stage: Stage) -> dict[str, object]:
    cluster = stage.cluster
    return {
        "step": stage.name,
        "tookMs": round(stage.took_ms, 1),
        "usedGPU": cluster.used_units,
        "totalGPU": cluster.total_units,
        "placed": [
            {
                "pod": each.pod,
                "node": each.node,
                "cards": [{"id": index, "usedGPU": units} for index, units in sorted(each.cards.items())],
                "limitMiB": each.limit_mib,
            }
            for each in stage.placed
        ],
        "waiting": [{"pod": each.pod, "gpuMem": each.units, "reason": each.reason} for each in stage.waiting],
    }


def _step(title: str, body: str) -> str:
    return f"== {title}\n\n{body.rstrip()}\n"


def _shown(command: str, output: str) -> str:
    return f"$ {command}\n{output.rstrip()}\n\n"


def _cards(cards: Mapping[int, int]) -> str:
    return ", ".join(f"GPU{index} ({units} units)" for index, units in sorted(cards.items()))
