"""Plays a scenario in a cluster, real or embedded, and writes down what can be compared.

What is left out of a recording, because it is chance, time, or not modelled:
* the order of candidate names in a call; the node of a pod named in `ties` (`*` stands for it);
* a filter call that is refused or fails in the same way as the last call about that pod: how often a refused
  or failing pod is tried again is a matter of time;
* when calls came: they are in the order in which they were answered, so that a slow one comes after all that
  overtook it;
* of a condition, all but status, reason and message; of an event, all but reason and message, and repetitions;
* what the real scheduler appends to a refusal about preemption, from `no new claims to deallocate` on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeAlias

from tests.fakes.scripted_extender import ScriptedCall, ScriptedExtender
from tests.support.scheduler_recordings.scenarios import SchedulerScenario, Step

Json: TypeAlias = Any  # Any: API objects and recordings

WITHIN_SECONDS = 30
POLL_SECONDS = 0.01
PREEMPTION = " no new claims to deallocate"


class ScenarioCluster(Protocol):
    """A cluster with one scheduler that calls the extender."""

    def create(self, kind: str, name: str, body: Json) -> None: ...
    def patch(self, plural: str, name: str, patch: Json, *, is_status: bool = False) -> None: ...
    def delete(self, pod: str) -> None: ...
    def pods(self) -> list[Json]: ...
    def events(self) -> list[Json]: ...


class ScenarioPlayer:
    """One play of one scenario."""

    def __init__(self, world: ScenarioCluster, extender: ScriptedExtender) -> None:
        self._world = world
        self._extender = extender

    def prepare(self, scenario: SchedulerScenario) -> None:
        """Before the scheduler starts."""
        for name, node in scenario.nodes.items():
            self._world.create("Node", name, node)

    async def play(self, scenario: SchedulerScenario) -> Json:
        """The recording."""
        for step in scenario.steps():
            await self._step(step)
        await self._step(("open", 0))
        return self._recording(scenario.ties)

    async def _step(self, step: Step) -> None:
        word = step[0]
        match step:
            case "node", name, body:
                self._world.create("Node", name, body)
            case "pod", name, spec:
                self._world.create("Pod", name, {"spec": spec})
            case (("patch" | "patch status"), name, patch):
                self._world.patch("pods", name, patch, is_status=word == "patch status")
            case "patch node", name, patch:
                self._world.patch("nodes", name, patch)
            case "delete", name:
                self._world.delete(name)
            case "rules", *rules:
                self._extender.rules = list(rules)
            case _:
                await wait_until_async(lambda: self._is_reached(step), str(step))

    def _is_reached(self, step: Step) -> bool:
        match step:
            case "bound", *names:
                return all(
                    self._pod(name)["spec"].get("nodeName") and self._is_told(name, "Scheduled") for name in names
                )
            case "failed", name, reason:
                return self._is_told(name, "FailedScheduling") and bool(self._condition(name).get("reason") == reason)
            case "says", name, message:
                return str(self._condition(name).get("message")).endswith(message)
            case "asked", name, count:
                return sum((call.verb, call.pod) == ("filter", name) for call in self._extender.calls) == int(count)
            case "event", name, reason:
                return self._is_told(name, reason)
            case "open", count:
                return self._extender.open_calls == int(count)
        raise ValueError(f"{step} is no step")

    def _pod(self, name: str) -> Json:
        return next(pod for pod in self._world.pods() if pod["metadata"]["name"] == name)

    def _condition(self, name: str) -> Json:
        return _seen(self._pod(name))["condition"]

    def _is_told(self, name: str, reason: str) -> bool:
        """Events are awaited too: the real scheduler writes them in its own time."""
        return any(
            (event["involvedObject"]["name"], event["reason"]) == (name, reason) for event in self._world.events()
        )

    def _recording(self, ties: frozenset[str]) -> Json:
        pods = {pod["metadata"]["name"]: _seen(pod) for pod in self._world.pods()}
        calls = [_told(call) for call in _without_repeats(self._extender.calls)]
        events: dict[str, dict[str, str]] = {}
        for event in sorted(self._world.events(), key=lambda event: str(event.get("eventTime"))):
            message = event["message"].partition(PREEMPTION)[0]
            events.setdefault(event["involvedObject"]["name"], {}).setdefault(event["reason"], message)
        for name in ties:
            _untie(name, pods, calls, events)
        return {"calls": calls, "pods": pods, "events": {name: events[name] for name in sorted(events)}}


async def wait_until_async(condition: Callable[[], bool], what: str) -> None:
    """Poll: nothing reports when a pod of the real cluster is bound."""
    try:
        async with asyncio.timeout(WITHIN_SECONDS):
            while not condition():  # noqa: ASYNC110 - a cluster has no asyncio.Event
                await asyncio.sleep(POLL_SECONDS)
    except TimeoutError as error:
        raise TimeoutError(f"{what}: not within {WITHIN_SECONDS} s") from error


def _without_repeats(calls: Sequence[ScriptedCall]) -> list[ScriptedCall]:
    kept: list[ScriptedCall] = []
    last: dict[str, ScriptedCall] = {}
    for call in calls:
        if last.get(call.pod) != call or call.says == "ok":
            kept.append(call)
        last[call.pod] = call
    return kept


def _told(call: ScriptedCall) -> Json:
    return {"verb": call.verb, "pod": call.pod, "nodes": list(call.nodes), "says": call.says}


def _seen(pod: Json) -> Json:
    condition = _scheduled_condition(pod)
    seen = {key: condition[key] for key in ("status", "reason", "message") if key in condition}
    if "message" in seen:
        seen["message"] = seen["message"].partition(PREEMPTION)[0]
    return {"node": pod["spec"].get("nodeName"), "condition": seen}


def _scheduled_condition(pod: Json) -> Json:
    conditions = pod.get("status", {}).get("conditions") or []
    return next((known for known in conditions if known["type"] == "PodScheduled"), {})


def _untie(name: str, pods: Json, calls: Json, events: Json) -> None:
    node = pods[name]["node"]
    pods[name]["node"] = "*"
    for call in calls:
        if call["verb"] == "bind" and call["pod"] == name:
            call["nodes"] = ["*"]
    events[name]["Scheduled"] = events[name]["Scheduled"].replace(f" to {node}", " to *")
