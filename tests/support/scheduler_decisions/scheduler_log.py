"""Reads decisions from the log of a kube-scheduler that runs with `LOG_FLAGS`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

LOG_FLAGS = ("--vmodule=schedule_one=10",)
"""Each score of each node: a hundred lines a decision."""
NODE_ADDED = "Added node to NodeTree"
BEGUN = "About to try and schedule pod"
FIT, BALANCE = "NodeResourcesFit", "NodeResourcesBalancedAllocation"

_MESSAGES = frozenset(
    [
        NODE_ADDED,
        BEGUN,
        "Plugin scored node for pod",
        "Extender scored node for pod",
        "Calculated node's final score for pod",
        "Successfully bound pod to node",
        "Unable to schedule pod; no fit; waiting",
    ]
)

_LINE = re.compile(r'\w+\.go:\d+\] "([^"]*)" (.*)')
_FIELD = re.compile(r'(\w+)=(?:"((?:[^"\\]|\\.)*)"|(\S+))')


@dataclass(slots=True)
class LoggedDecision:
    """What the log tells of one attempt to place a pod."""

    pod: str
    plugins: dict[str, dict[str, int]] = field(default_factory=dict)
    """By plug-in and node, times the plug-in's weight."""
    extender: dict[str, int] = field(default_factory=dict)
    """By node, as the extender gave them."""
    totals: dict[str, int] = field(default_factory=dict)
    chosen: str = ""
    evaluated: int = 0


class SchedulerLogReader:
    """Give it the log as it grows: `read_lines`."""

    def __init__(self) -> None:
        self.decisions: list[LoggedDecision] = []
        """In the order in which the scheduler began them."""
        self.nodes: list[str] = []
        """In the order in which the scheduler looks at them: the order in which it learned of them."""
        self._by_pod: dict[str, LoggedDecision] = {}
        self.ended = 0

    def read_lines(self, lines: Iterable[str]) -> None:
        """Raises `ValueError` where a pod is tried twice."""
        for line in lines:
            found = _LINE.search(line)
            if found is not None:
                self._read_message(found[1], found[2])

    def _read_message(self, message: str, text: str) -> None:
        if message not in _MESSAGES:
            return
        fields = {key: quoted or plain for key, quoted, plain in _FIELD.findall(text)}
        if message == NODE_ADDED:
            self.nodes.append(fields["node"])
            return
        pod = fields["pod"].rpartition("/")[2]
        if message == BEGUN:
            self._begin_decision(pod)
        else:
            self._continue_decision(message, self._by_pod[pod], fields)

    def _begin_decision(self, pod: str) -> None:
        if pod in self._by_pod:
            raise ValueError(f"pod {pod} was tried twice")
        self._by_pod[pod] = decision = LoggedDecision(pod)
        self.decisions.append(decision)

    def _continue_decision(self, message: str, decision: LoggedDecision, fields: Mapping[str, str]) -> None:
        match message:
            case "Plugin scored node for pod":
                decision.plugins.setdefault(fields["plugin"], {})[fields["node"]] = int(fields["score"])
            case "Extender scored node for pod":
                decision.extender[fields["node"]] = int(fields["score"])
            case "Calculated node's final score for pod":
                decision.totals[fields["node"]] = int(fields["score"])
            case "Successfully bound pod to node":
                decision.chosen, decision.evaluated = fields["node"], int(fields["evaluatedNodes"])
                self.ended += 1
            case "Unable to schedule pod; no fit; waiting":
                self.ended += 1
