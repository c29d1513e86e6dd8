"""The next step for a pod that the extender would not refuse: held back, fitting and yet not bound, or not looked at."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from vrampack.cards.fit import UnfitReason
from vrampack.cli.explain.judged import JudgedNode, Judgement
from vrampack.cli.explain.next_step import listed
from vrampack.cli.explain.pod import PodWords

OUR_SCHEDULER = "vrampack"
"""The name in the scheduler configuration that ships."""


def step_for_gated(gates: Sequence[str], then: str) -> str:
    """Gates come first; what else is missing, `then`, is worth doing meanwhile."""
    step = f"its scheduling gates hold it back: {listed(gates)}; whoever set them takes them away"
    return f"{step}. Then: {then}" if then else step


def step_for_fitting(judgement: Judgement, words: PodWords, schedulers: Counter[str]) -> str:
    """What to do although it fits: what keeps it from those nodes, or the scheduler from looking, or its words."""
    if words.status.nominated_node_name:
        return f"wait: pods of lower priority are leaving {words.status.nominated_node_name} for it"
    blocked = [node for node in judgement.fitting if node.obstacles]
    if len(blocked) == len(judgement.fitting):
        return _obstacle(blocked[0])
    if words.refusal is None:
        return _not_looked_at(words.scheduler_name, schedulers)
    return _refused(words, schedulers)


def _obstacle(node: JudgedNode) -> str:
    cards = "cards" if len(node.chosen) > 1 else "card"
    return f"the {cards} of {node.name} would do, but {'; '.join(node.obstacles)}: change the node or the pod"


def _not_looked_at(scheduler: str, schedulers: Counter[str]) -> str:
    return f"no scheduler has looked at it yet: see that one named {scheduler} runs{_through(scheduler, schedulers)}"


def _refused(words: PodWords, schedulers: Counter[str]) -> str:
    """The scheduler refused it at its last attempt, by our words or by its own."""
    said = (words.refusal.message if words.refusal else None) or ""
    if any(reason.value in said for reason in UnfitReason):
        return "wait: room has come since its last attempt, and the scheduler tries again within five minutes"
    through = _through(words.scheduler_name, schedulers)
    return f"the scheduler's own words above say what it lacks besides memory of a card{through}"


def _through(scheduler: str, schedulers: Counter[str]) -> str:
    """Whether that scheduler is one that calls the extender, as far as the cluster shows."""
    if scheduler in schedulers:
        return ""
    if schedulers:
        return f"; its schedulerName is {scheduler}, the pods that the extender bound came through {listed(sorted(schedulers))}"
    if scheduler == OUR_SCHEDULER:
        return ""
    return f"; its schedulerName is {scheduler}, the scheduler that ships with the extender is {OUR_SCHEDULER}"
