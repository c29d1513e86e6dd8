"""I4: bind said yes if and only if the API shows it.

A bind has three answers. Yes (`Error` empty): the API must show that pod, by uid, on that node with our record, unless the
pod is gone. No (`Error` says why): it must not, unless another call for the same pod and node may have done it. Unknown (no
answer reached the scheduler, or the extender said it cannot know): either is right.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum

from tests.auditor.pods import AuditedPod
from tests.auditor.raw import Raw, mapping, text, whole_number
from tests.auditor.terms import Violation

UNKNOWN_OUTCOME = "bind outcome unknown"


class BindAnswer(Enum):
    YES = "yes"
    NO = "no"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class BindCall:
    """One bind as the scheduler asked it and understood the answer."""

    pod: str
    uid: str
    node: str
    said: BindAnswer


def read_binds(transcript: Iterable[Raw]) -> list[BindCall]:
    """The bind calls of a transcript; calls whose body names no pod are none."""
    calls = []
    for line in transcript:
        asked = mapping(line.get("request"))
        if line.get("verb") == "bind" and text(asked.get("PodUID")):
            pod = f"{text(asked.get('PodNamespace'))}/{text(asked.get('PodName'))}"
            calls.append(BindCall(pod, text(asked.get("PodUID")), text(asked.get("Node")), _said(line)))
    return calls


def wrong_answers(calls: Iterable[BindCall], pods: Iterable[AuditedPod], *, complete: bool) -> Iterator[Violation]:
    """Bind answers that the API contradicts; with a complete transcript also placements that no bind call explains."""
    said: defaultdict[tuple[str, str], set[BindAnswer]] = defaultdict(set)
    for call in calls:
        said[call.uid, call.node].add(call.said)
    here = list(pods)
    by_uid, by_name = {pod.uid: pod for pod in here}, {pod.name: pod for pod in here}
    for call in dict.fromkeys(calls):
        if fault := _fault(call, by_uid.get(call.uid), by_name.get(call.pod), said):
            yield Violation("I4", f"pod {call.pod}", fault)
    for pod in here:
        if complete and pod.node and pod.has_our_record and not said.get((pod.uid, pod.node)):
            yield Violation("I4", pod.object, f"on node {pod.node} with our record, and no bind call asked for that")


def _said(line: Raw) -> BindAnswer:
    if line.get("error"):
        return BindAnswer.UNKNOWN
    # To the scheduler any other status is a failed attempt, whatever the body says.
    if (status := whole_number(line.get("status"))) not in {None, 200}:
        return BindAnswer.NO
    if status is None or not isinstance(line.get("answer"), Mapping):
        return BindAnswer.UNKNOWN
    # The scheduler matches keys regardless of case.
    answer = {key.lower(): value for key, value in mapping(line.get("answer")).items()}
    problem = text(answer.get("error"))
    if problem.startswith(UNKNOWN_OUTCOME):
        return BindAnswer.UNKNOWN
    return BindAnswer.NO if problem else BindAnswer.YES


def _fault(
    call: BindCall, pod: AuditedPod | None, namesake: AuditedPod | None, said: Mapping[tuple[str, str], set[BindAnswer]]
) -> str:
    if pod is None:
        return _fault_of_namesake(call, namesake, said) if call.said is BindAnswer.YES and namesake else ""
    is_there = pod.node == call.node
    if call.said is BindAnswer.YES and not is_there:
        return f"bind said yes for node {call.node}, the API shows {pod.node or 'no node'}"
    if call.said is BindAnswer.YES and pod.ask.units and not pod.has_our_record:
        return f"bind said yes for node {call.node}, the API shows the pod there without our record"
    may_have = said[call.uid, call.node] - {BindAnswer.NO}
    if call.said is BindAnswer.NO and is_there and pod.has_our_record and not may_have:
        return f"bind said no for node {call.node}, the API shows the pod there with our record"
    return ""


def _fault_of_namesake(call: BindCall, namesake: AuditedPod, said: Mapping[tuple[str, str], set[BindAnswer]]) -> str:
    """The requested pod is gone; another one of its name must not have got its place."""
    own = said.get((namesake.uid, namesake.node), set()) - {BindAnswer.NO}
    if namesake.node != call.node or not namesake.has_our_record or own:
        return ""
    return f"bind said yes for uid {call.uid}, the API shows uid {namesake.uid} on node {call.node} with our record"
