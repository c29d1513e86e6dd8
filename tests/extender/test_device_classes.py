"""Device classes that claim our resource are logged and counted, once; no failure disturbs anything else."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import suppress

import pytest

from extender.checks import device_classes
from extender.checks.device_classes import DeviceClassCheck
from extender.metrics import ExtenderMetrics
from tests.fakes.faults import FaultBuilder
from tests.fakes.proxy import FaultProxy
from tests.support.recorded_api_calls import RecordedApiCalls, open_api
from vrampack.kube.client import Api
from vrampack.simulator.apiserver import ApiServer

RESOURCE = "aliyun.com/gpu-mem"


class DeviceClassHarness:
    """A check through a proxy, whose answers are what the cluster has. Behind it, the kind does not exist."""

    def __init__(self, proxy: FaultProxy, api: Api) -> None:
        self.proxy = proxy
        self.metrics = ExtenderMetrics("test")
        self.classes = DeviceClassCheck(api, self.metrics, resource=RESOURCE, every_seconds=0.0)

    @property
    def lists(self) -> FaultBuilder:
        return self.proxy.when("GET", "^/apis/resource.k8s.io/v1/deviceclasses")

    @property
    def conflicts(self) -> float:
        (family,) = self.metrics.device_class_conflicts.collect()
        return family.samples[0].value

    async def check_classes(self, *, status: int = 200, **classes: str | None) -> float:
        """Check once, with classes of these extended resources or with a refusal; returns what the gauge shows then."""
        body = a_page(*(a_class(name, resource) for name, resource in classes.items()))
        self.lists.answer(status, body if status == 200 else None, times=1)
        await self.classes.check_device_classes()
        return self.conflicts


def a_class(name: str, resource: str | None) -> dict[str, object]:
    return {"metadata": {"name": name}, "spec": {} if resource is None else {"extendedResourceName": resource}}


def a_page(*classes: dict[str, object], following: str = "") -> dict[str, object]:
    """A page of a list; `following` is the token of the next one."""
    return {"kind": "DeviceClassList", "metadata": {"resourceVersion": "1", "continue": following}, "items": classes}


@pytest.fixture
async def setting() -> AsyncIterator[DeviceClassHarness]:
    async with (
        ApiServer() as server,
        FaultProxy(int(server.url.rpartition(":")[2])) as proxy,
        open_api(proxy.url, RecordedApiCalls()) as api,
    ):
        yield DeviceClassHarness(proxy, api)


@pytest.fixture
def logged(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.INFO, logger=device_classes.__name__)
    return caplog


def lines(logged: pytest.LogCaptureFixture) -> list[tuple[str, str]]:
    """Level and text of what was logged since the last call."""
    found = [
        (record.levelname, record.getMessage()) for record in logged.records if record.name == device_classes.__name__
    ]
    logged.clear()
    return found


async def test_no_conflict_count_is_reported_before_the_first_check(setting: DeviceClassHarness) -> None:
    assert setting.conflicts == -1


async def test_a_class_with_our_resource_is_logged_once_with_the_fix(
    setting: DeviceClassHarness, logged: pytest.LogCaptureFixture
) -> None:
    assert await setting.check_classes(gpu=RESOURCE, other="example.com/gpu", plain=None) == 1
    assert lines(logged) == [
        (
            "ERROR",
            (
                "device class conflict class=gpu resource=aliyun.com/gpu-mem problem=on nodes that do not advertise it "
                "the scheduler looks for devices of that class and does not call the extender, so pods wait; delete the "
                "class or change its spec.extendedResourceName"
            ),
        )
    ]
    assert await setting.check_classes(gpu=RESOURCE) == 1
    assert lines(logged) == []


async def test_every_change_is_logged(setting: DeviceClassHarness, logged: pytest.LogCaptureFixture) -> None:
    await setting.check_classes(a=RESOURCE)
    lines(logged)
    assert await setting.check_classes(a=RESOURCE, b=RESOURCE) == 2
    assert [(level, "class=b " in text) for level, text in lines(logged)] == [("ERROR", True)]
    assert await setting.check_classes(b=RESOURCE) == 1
    assert lines(logged) == [("INFO", "device class conflict ended class=a")]
    assert await setting.check_classes(b="example.com/gpu") == 0
    assert lines(logged) == [("INFO", "device class conflict ended class=b")]
    assert await setting.check_classes(b=RESOURCE) == 1
    assert [level for level, _ in lines(logged)] == ["ERROR"]


async def test_all_pages_are_read(setting: DeviceClassHarness) -> None:
    last = a_page(a_class("z", RESOURCE))
    setting.proxy.when("GET", "continue=next").answer(200, last, times=1)
    setting.lists.answer(200, a_page(a_class("a", RESOURCE), following="next"), times=1)
    await setting.classes.check_device_classes()
    assert setting.conflicts == 2
    assert [exchange.target for exchange in setting.proxy.matching("GET", "")] == [
        "/apis/resource.k8s.io/v1/deviceclasses?limit=50",
        "/apis/resource.k8s.io/v1/deviceclasses?limit=100&continue=next",
    ]


async def test_a_cluster_without_device_classes_has_no_conflict(
    setting: DeviceClassHarness, logged: pytest.LogCaptureFixture
) -> None:
    """Like an old one, the embedded API server does not know the kind."""
    await setting.classes.check_device_classes()
    assert setting.conflicts == 0
    assert lines(logged) == []


async def test_a_missing_permission_is_logged_once_and_the_count_is_unknown(
    setting: DeviceClassHarness, logged: pytest.LogCaptureFixture
) -> None:
    assert await setting.check_classes(status=403) == -1
    assert await setting.check_classes(status=403) == -1
    ((level, text),) = lines(logged)
    assert level == "WARNING"
    assert "lacks the right to list deviceclasses of resource.k8s.io; apply the roles again" in text
    assert await setting.check_classes(gpu=RESOURCE) == 1


@pytest.mark.parametrize("status", [401, 410, 429, 500, 503])
async def test_a_failure_is_logged_once_and_the_last_result_stays(
    setting: DeviceClassHarness, logged: pytest.LogCaptureFixture, status: int
) -> None:
    await setting.check_classes(gpu=RESOURCE)
    lines(logged)
    assert await setting.check_classes(status=status) == 1
    assert await setting.check_classes(status=status) == 1
    assert [(level, f"error={status} " in text) for level, text in lines(logged)] == [("WARNING", True)]
    assert await setting.check_classes(gpu=RESOURCE) == 1
    assert lines(logged) == []


@pytest.mark.parametrize("body", [b"", b"[]", b'{"items":7}', b'{"items":[{"spec":{"extendedResourceName":1}}]}'])
async def test_an_answer_that_is_no_list_is_a_failure(
    setting: DeviceClassHarness, logged: pytest.LogCaptureFixture, body: bytes
) -> None:
    setting.lists.answer(200, body)
    await setting.classes.check_device_classes()
    assert setting.conflicts == -1
    assert [(level, "list deviceclasses" in text) for level, text in lines(logged)] == [("WARNING", True)]


async def test_an_endless_list_is_abandoned(
    setting: DeviceClassHarness, logged: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(device_classes, "CHECK_TIMEOUT_SECONDS", 0.05)
    setting.lists.answer(200, a_page(following="more"))
    await setting.classes.check_device_classes()
    assert setting.conflicts == -1
    assert lines(logged) == [("WARNING", "device classes not checked error=TimeoutError")]


async def test_a_cut_connection_is_a_failure(setting: DeviceClassHarness, logged: pytest.LogCaptureFixture) -> None:
    setting.lists.cut()
    await setting.classes.check_device_classes()
    assert setting.conflicts == -1
    assert [level for level, _ in lines(logged)] == ["WARNING"]


async def test_checks_repeat_until_cancelled(setting: DeviceClassHarness) -> None:
    """Also after a failure: the pause is at most the usual one, which is none here."""
    setting.lists.cut(times=2)
    task = asyncio.create_task(setting.classes.run())
    await setting.proxy.seen("GET", "deviceclasses", times=4)
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
    assert task.cancelled()
    assert setting.conflicts == 0


def test_a_failure_is_tried_again_sooner_and_then_less_often(setting: DeviceClassHarness) -> None:
    classes = DeviceClassCheck(setting.classes._api, setting.metrics, resource=RESOURCE)
    pauses = []
    for failures in (0, 1, 2, 3, 6, 100):
        classes._failures = failures
        pauses.append(classes._get_pause_seconds())
    assert pauses == [300, 10, 20, 40, 300, 300]
