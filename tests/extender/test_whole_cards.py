"""Whole cards that are paid for, in the extender: the event, and what runs when it starts."""

from __future__ import annotations

import asyncio
import json

import pytest

from extender.app import Extender, ExtenderOptions
from extender.metrics import ExtenderMetrics
from extender.rule_settings import RuleSettings, WholeCards
from extender.settings import ExtenderConfiguration
from tests.extender.scheduler_harness import SchedulerHarness
from tests.fakes.api import FakeKubeApi
from tests.support.builders import ledger_pod, node_facts, pod_request
from vrampack.cards.node import Share
from vrampack.cards.pod import Pod
from vrampack.cards.records import Record

OWN_POD = Pod("own", "vrampack", "extender-0")


def call_filter(desk: SchedulerHarness, name: str, units: int) -> dict[str, str]:
    """The reasons by node, for a pod that asks for a whole card."""
    call = json.loads(desk.encode_call(name, units))
    call["Pod"]["metadata"]["labels"] = {"ack.gpushare.placement": "require-whole-device"}
    answer = json.loads(desk.parts.verbs.filter(json.dumps(call).encode()).body)
    reasons: dict[str, str] = answer["FailedAndUnresolvableNodes"]
    return reasons


async def test_a_pod_that_asks_for_too_little_gets_an_event_with_the_units() -> None:
    """The second pod is answered from the cache of rejections, and gets its event too."""
    desk = SchedulerHarness({"a": [15], "b": [16]})
    for name, units in (("first", 4), ("second", 4), ("paying", 15), ("waiting", 15)):
        desk.ledger.update_pod(ledger_pod(name, ask=pod_request(units, whole=True)))
    for name in ("first", "second"):
        assert set(call_filter(desk, name, 4).values()) == {"whole card asks for too little"}
    assert call_filter(desk, "paying", 15) == {"b": "whole card asks for too little"}
    desk.add_bound_pod("held", "a", 15)
    assert call_filter(desk, "waiting", 15) == {
        "b": "whole card asks for too little"
    }  # for a, which it pays for: no event
    told = await desk.tell_refused()
    text = "it asks for 4 units for a whole card; ask for all of their units: unknown model 15 or 16"
    assert [each for each in told if each[0] == "GPUMemoryWholeCardUnpaid"] == [("GPUMemoryWholeCardUnpaid", text)] * 2


STARTS: dict[str, tuple[WholeCards | None, int, bool]] = {
    # the setting, units that a running pod with a whole card of 15 asks for -> whether a new one may ask for 4
    "nothing speaks against it": (None, 15, False),
    "a pod holds more than it asks for": (None, 4, True),
    "paid is set": ("paid", 4, False),
    "as-requested is set": ("as-requested", 15, True),
}


@pytest.mark.parametrize(("given", "units", "fits"), STARTS.values(), ids=STARTS)
async def test_where_nothing_is_set_running_pods_decide(given: WholeCards | None, units: int, fits: bool) -> None:  # noqa: FBT001 - a table
    api = FakeKubeApi()
    settings = ExtenderConfiguration(
        apiVersion="vrampack.dev/v1", kind="ExtenderConfiguration", rules=RuleSettings(whole_cards=given)
    )
    service = Extender(ExtenderOptions(settings, "test", pod=OWN_POD), api, ExtenderMetrics("test"))
    service._ledger.update_node(node_facts("n", 15, 15))
    record = Record("vrampack", (Share(15, "GPU-0", 0, whole=True),))
    service._ledger.update_pod(ledger_pod("old", ask=pod_request(units, whole=True), node="n", record=record))

    await service._settle_whole_cards()

    for _ in range(2):  # also after a reload that leaves it open
        asked = service._ledger.in_force.resolve_request(Pod("", "default", "new"), pod_request(4, whole=True))
        assert bool(service._components.engine.filter_nodes(["n"], asked, "new").passed) is fits
        await service.on_settings_changed(settings)
    writer = asyncio.create_task(service._events.run())
    await service._events.wait_until_written()
    writer.cancel()
    is_warned = fits and given is None
    assert [event["reason"] for _, event in api.events] == ["GPUMemoryWholeCardsAsRequested"] * is_warned
    assert all("pod default/old holds 15 units and asks for 4" in str(event["message"]) for _, event in api.events)
