"""A fault of ours reaches the scheduler as an answer that it can read, never as a yes."""

from __future__ import annotations

import json
from typing import Any

import pytest

from extender.http.timed_verbs import AsyncVerb, SyncVerb
from extender.metrics import ExtenderMetrics
from extender.wire.codec import VerbResponse

CAUSE = "internal error of vrampack; its log has the cause"
ANSWERS: dict[str, tuple[int, dict[str, Any]]] = {
    # The scheduler reads nothing but the status of an answer that is not 200, so filter says it in its own field.
    "filter": (
        200,
        {"Error": CAUSE, "NodeNames": [], "Nodes": None, "FailedNodes": {}, "FailedAndUnresolvableNodes": {}},
    ),
    # There is no such field.
    "prioritize": (500, {"error": CAUSE}),
    "preempt": (500, {"error": CAUSE}),
    # It may have been written before the fault.
    "bind": (200, {"Error": f"bind outcome unknown: {CAUSE}"}),
}


def fail(_: bytes) -> VerbResponse:
    raise ArithmeticError("a fault of ours")


async def fail_late(body: bytes) -> VerbResponse:
    return fail(body)


@pytest.mark.parametrize("verb", ANSWERS)
async def test_a_fault_is_answered_in_the_form_of_its_verb(verb: str) -> None:
    metrics, told = ExtenderMetrics("test"), list[str]()
    at_once = SyncVerb(verb, fail, metrics, told.append).answer_call(b"")
    for answer in (at_once, await AsyncVerb(verb, fail_late, metrics, told.append).answer_call(b"")):
        assert isinstance(answer, VerbResponse)
        assert (answer.status, json.loads(answer.body)) == ANSWERS[verb]
        assert answer.result == "error"
    assert told == [verb, verb]
