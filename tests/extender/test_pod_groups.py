"""The minimum of each group, as PodGroups of either kind have it; a cluster without them is as good as one with none."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from http import HTTPStatus
from typing import Any, get_args

import msgspec
import pytest

from extender.metrics import ExtenderMetrics
from extender.state import pod_groups
from extender.state.pod_groups import PodGroups, PodGroupSink, PodGroupWatcher
from tests.fakes.api import FakeKubeApi
from vrampack.cards.pod_group import GroupKey, GroupKind
from vrampack.kube import reflector
from vrampack.kube.aio_client import Configuration
from vrampack.kube.api_request import PodGroupResource
from vrampack.kube.client import Api
from vrampack.kube.credentials import Credentials
from vrampack.kube.errors import NoAnswerError, RefusedError
from vrampack.kube.objects import PodObject, to_pod
from vrampack.kube.pod_groups import RESOURCES, PodGroupObject
from vrampack.kube.reflector import ObjectReference
from vrampack.kube.watch_reader import ByteStream
from vrampack.simulator.apiserver import ApiServer

OWN: GroupKind = "podgroups.scheduling.k8s.io"
PLUGIN: GroupKind = "podgroups.scheduling.x-k8s.io"
OWN_RESOURCE: PodGroupResource = "podgroups.v1alpha2.scheduling.k8s.io"
PLUGIN_RESOURCE: PodGroupResource = "podgroups.v1alpha1.scheduling.x-k8s.io"
GANG = {"schedulingPolicy": {"gang": {"minCount": 3}}}
Object = dict[str, Any]  # Any: a raw API object


def a_group(name: str, spec: Object) -> PodGroupObject:
    return msgspec.convert({"metadata": {"name": name, "namespace": "ml"}, "spec": spec}, PodGroupObject)


SPECS: dict[str, tuple[Object, int | None]] = {
    "a gang": (GANG, 3),
    "pods that start one by one": ({"schedulingPolicy": {"basic": {}}}, None),
    "Coscheduling's": ({"minMember": 4}, 4),
    "nothing": ({}, None),
}


BY_RACK = {"schedulingConstraints": {"topology": [{"key": "example.com/rack"}]}}
TOPOLOGIES: dict[str, tuple[Object, str]] = {
    "one label": (GANG | BY_RACK, "example.com/rack"),
    "no constraint": (GANG | {"schedulingConstraints": {"topology": []}}, ""),
    "another constraint": (GANG | {"schedulingConstraints": {"spread": 1}}, ""),
    "nothing": (GANG, ""),
}


@pytest.mark.parametrize(("spec", "key"), TOPOLOGIES.values(), ids=TOPOLOGIES)
def test_the_label_that_its_nodes_share_is_read(spec: Object, key: str) -> None:
    assert a_group("train", spec).topology_key == key


@pytest.mark.parametrize(("spec", "minimum"), SPECS.values(), ids=SPECS)
def test_the_minimum_is_read_of_either_kind(spec: Object, minimum: int | None) -> None:
    assert a_group("train", spec).minimum == minimum


PODS: dict[str, tuple[Object, dict[str, str], GroupKey | None]] = {
    "Kubernetes' own": ({"schedulingGroup": {"podGroupName": "g"}}, {}, GroupKey(OWN, "ml", "g")),
    "Coscheduling's": ({}, {"scheduling.x-k8s.io/pod-group": "g"}, GroupKey(PLUGIN, "ml", "g")),
    "no name": ({"schedulingGroup": {}}, {}, None),
    "not readable": ({"schedulingGroup": {"podGroupName": 3}}, {}, None),
    "none": ({}, {}, None),
}


@pytest.mark.parametrize(("spec", "labels", "group"), PODS.values(), ids=PODS)
def test_a_pod_is_in_the_group_that_it_names(spec: Object, labels: dict[str, str], group: GroupKey | None) -> None:
    asking = {"containers": [{"name": "m", "resources": {"limits": {"aliyun.com/gpu-mem": "4"}}}]}
    raw = {"metadata": {"name": "p", "namespace": "ml", "labels": labels}, "spec": asking | spec}
    assert to_pod(msgspec.json.decode(msgspec.json.encode(raw), type=PodObject)).group == group


def test_groups_come_change_and_go() -> None:
    groups = PodGroups()
    sink = PodGroupSink(groups, OWN, ExtenderMetrics("test"))
    a, b, other = GroupKey(OWN, "ml", "a"), GroupKey(OWN, "ml", "b"), GroupKey(PLUGIN, "ml", "a")
    groups.put_minimum(other, 2)
    sink.on_list_started("start")
    sink.on_page([a_group("a", GANG | BY_RACK), a_group("b", BY_RACK)])
    sink.on_list_finished()
    assert [groups.get_minimum(each) for each in (a, b, other)] == [3, None, 2]
    assert [groups.get_topology_key(each) for each in (a, b, other)] == ["example.com/rack"] * 2 + [""]
    sink.on_changed(a_group("a", {"schedulingPolicy": {"gang": {"minCount": 4}}}))
    sink.on_deleted(a_group("b", GANG))
    assert [groups.get_minimum(each) for each in (a, b, other)] == [4, None, 2]
    assert [groups.get_topology_key(each) for each in (a, b)] == ["", ""]
    sink.on_malformed(ObjectReference("ml", "a", ""), "not decoded")
    assert groups.get_minimum(a) is None
    sink.on_changed(a_group("a", GANG))
    sink.on_list_started("expired")
    sink.on_list_finished()
    assert [groups.get_minimum(each) for each in (a, b, other)] == [None, None, 2]


class GroupApi(FakeKubeApi):
    """Has Coscheduling's groups, and one version of Kubernetes' own after some failures."""

    def __init__(self, *failures: Exception, version: PodGroupResource = OWN_RESOURCE) -> None:
        super().__init__()
        self._failures = list(failures)
        self._version = version
        self.watched: asyncio.Queue[str] = asyncio.Queue()

    async def list_page(self, resource: str, **_: object) -> bytes:
        if resource == self._version and self._failures:
            raise self._failures.pop(0)
        if resource not in (self._version, PLUGIN_RESOURCE):
            raise RefusedError(HTTPStatus.NOT_FOUND, "NotFound", "")
        items = [a_group("train", GANG if resource == self._version else {"minMember": 2})]
        return msgspec.json.encode({"kind": "PodGroupList", "metadata": {"resourceVersion": "1"}, "items": items})

    @asynccontextmanager
    async def watch(self, resource: str, *_: object, **__: object) -> AsyncIterator[ByteStream]:
        self.watched.put_nowait(resource)
        yield await asyncio.Future[ByteStream]()  # never comes


async def test_a_kind_is_watched_once_the_api_server_has_it(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(pod_groups, "PROBE_INTERVAL_SECONDS", 0.0)
    monkeypatch.setattr(pod_groups, "RETRY_SECONDS", 0.0)
    forbidden = RefusedError(HTTPStatus.FORBIDDEN, "Forbidden", "")
    api = GroupApi(RefusedError(HTTPStatus.NOT_FOUND, "NotFound", ""), forbidden, forbidden, NoAnswerError("cut"))
    groups = PodGroups()
    running = asyncio.create_task(PodGroupWatcher(api, groups, ExtenderMetrics("test")).run())
    assert {await api.watched.get(), await api.watched.get()} == {OWN_RESOURCE, PLUGIN_RESOURCE}
    running.cancel()
    assert [groups.get_minimum(GroupKey(kind, "ml", "train")) for kind in (OWN, PLUGIN)] == [3, 2]
    assert [each.getMessage() for each in caplog.records] == [
        f"pod groups not read kind={OWN} problem=the account lacks list and watch; apply the roles"
    ]


@pytest.mark.parametrize("version", RESOURCES[OWN])
async def test_each_version_of_the_kind_is_read(version: PodGroupResource) -> None:
    api, groups = GroupApi(version=version), PodGroups()
    running = asyncio.create_task(PodGroupWatcher(api, groups, ExtenderMetrics("test")).run())
    assert {await api.watched.get(), await api.watched.get()} == {version, PLUGIN_RESOURCE}
    running.cancel()
    assert groups.get_minimum(GroupKey(OWN, "ml", "train")) == 3


@pytest.mark.parametrize("status", [HTTPStatus.FORBIDDEN, HTTPStatus.NOT_FOUND])
async def test_a_kind_that_is_withdrawn_is_forgotten_until_it_is_back(
    status: HTTPStatus, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pod_groups, "PROBE_INTERVAL_SECONDS", 0.0)
    monkeypatch.setattr(reflector, "LONGEST_SECONDS", 0.0)
    refused = RefusedError(status, "", "")
    groups, key, minimums = PodGroups(), GroupKey(OWN, "ml", "train"), asyncio.Queue[int | None]()
    groups.add_listener(lambda group: minimums.put_nowait(groups.get_minimum(group)) if group == key else None)

    class WithdrawnApi(GroupApi):
        @asynccontextmanager
        async def watch(self, resource: str, *_: object, **__: object) -> AsyncIterator[ByteStream]:
            if resource == OWN_RESOURCE and not self.watched.qsize():
                self.watched.put_nowait(resource)
                self._failures = [refused, refused]
                raise refused
            yield await asyncio.Future[ByteStream]()  # never comes

    running = asyncio.create_task(PodGroupWatcher(WithdrawnApi(), groups, ExtenderMetrics("test")).run())
    assert [await minimums.get() for _ in range(3)] == [3, None, 3]
    running.cancel()


@pytest.mark.parametrize("resource", get_args(PodGroupResource))
async def test_an_api_server_without_the_kind_is_not_taken_for_another_server(resource: PodGroupResource) -> None:
    """It answers in plain text, as a balancer would."""
    codes: list[int] = []

    def observe(*, code: int, **_: object) -> None:
        codes.append(code)

    async with ApiServer() as server:
        api = Api(Credentials(Configuration(host=server.url)), observe=observe)
        with pytest.raises(RefusedError, match="404"):
            await api.list_page(resource, limit=1)
        with pytest.raises(RefusedError, match="404"):
            async with api.watch(resource, "1", server_seconds=1, silence_seconds=1):
                pass
        await api.close()
    assert codes == [HTTPStatus.NOT_FOUND] * 2
