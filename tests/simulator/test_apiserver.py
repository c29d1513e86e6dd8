"""The embedded API server's own features: its handle for tests, and faults that a real server cannot be made to show."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest

from vrampack.simulator import workload_strategy
from vrampack.simulator.apiserver import ApiServer

STALL_SECONDS = 0.1
"""How long to wait to see that nothing comes; a change on loopback takes about a millisecond."""


@pytest.fixture
async def api() -> AsyncIterator[ApiServer]:
    async with ApiServer() as running:
        yield running


@pytest.fixture
async def client() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession() as session:
        yield session


def a_pod(name: str, **metadata: object) -> dict[str, Any]:
    return {"kind": "Pod", "metadata": {"name": name, **metadata}, "spec": {"containers": [{"name": "main"}]}}


def watch_pods(api: ApiServer, **query: object) -> str:
    options = {"watch": "true", "resourceVersion": api.resource_version, "allowWatchBookmarks": "true"} | query
    return f"{api.url}/api/v1/pods?" + "&".join(f"{key}={value}" for key, value in options.items())


async def next_event(response: aiohttp.ClientResponse) -> tuple[str, str]:
    """The type, and the name of the object or a bookmark's version."""
    async with asyncio.timeout(10):
        event = json.loads(await response.content.readline())
    metadata = event["object"]["metadata"]
    return event["type"], metadata.get("name") or metadata.get("resourceVersion", "")


async def is_silent(response: aiohttp.ClientResponse) -> bool:
    try:
        async with asyncio.timeout(STALL_SECONDS):
            await response.content.readline()
    except TimeoutError:
        return True
    return False


def test_the_handle_copies_objects_it_takes_and_returns() -> None:
    api = ApiServer()
    body = a_pod("a", annotations={"x": "1"})
    made = api.create(body)

    body["metadata"]["annotations"]["x"] = "2"
    made["metadata"]["annotations"]["x"] = "3"
    api.list_pods()[0]["metadata"]["annotations"]["x"] = "4"

    assert api.get("pods", "a")["metadata"]["annotations"] == {"x": "1"}


def test_the_handle_changes_what_clients_see() -> None:
    api = ApiServer()
    api.create({"kind": "Node", "metadata": {"name": "n"}})
    api.create(a_pod("a", namespace="ml"))

    api.patch("pods", "a", {"status": {"phase": "Running"}}, namespace="ml", is_status=True)
    api.patch("nodes", "n", {"metadata": {"annotations": {"x": "1"}}})

    assert [pod["status"]["phase"] for pod in api.list_pods()] == ["Running"]
    assert [node["metadata"]["annotations"] for node in api.list_nodes()] == [{"x": "1"}]
    api.delete("pods", "a", namespace="ml")
    assert api.list_pods() == []


def test_a_restored_object_keeps_its_identity() -> None:
    body = a_pod("a", uid="recorded", resourceVersion="77", creationTimestamp="2025-01-01T00:00:00Z")
    body["spec"]["nodeName"] = "n"

    restored = ApiServer().restore(body | {"status": {"phase": "Running"}})

    assert restored["metadata"]["uid"] == "recorded"
    assert restored["metadata"]["creationTimestamp"] == "2025-01-01T00:00:00Z"
    assert restored["metadata"]["resourceVersion"] != "77"  # versions are this cluster's own
    assert (restored["spec"]["nodeName"], restored["status"]["phase"]) == ("n", "Running")


def test_a_restored_object_gets_no_defaults() -> None:
    """A recorded pod lacks the requests that its limits imply; a later patch must not count as a change of its spec."""
    api = ApiServer()
    body = a_pod("a")
    body["spec"]["containers"][0]["resources"] = {"limits": {"aliyun.com/gpu-mem": 4}}
    api.restore(body)

    patched = api.patch("pods", "a", {"metadata": {"labels": {"x": "1"}}})

    assert (patched["metadata"]["labels"], patched["spec"]) == ({"x": "1"}, body["spec"])


def test_workloads_are_created_like_other_objects() -> None:
    template = {"metadata": {"labels": {"app": "s"}}, "spec": {"containers": [{"name": "main"}]}}
    spec = {"selector": {"matchLabels": {"app": "s"}}, "template": template}
    body = {"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": "s", "namespace": "ml"}, "spec": spec}

    made = ApiServer().create(body)

    assert (made["apiVersion"], made["kind"], made["spec"]["replicas"]) == ("apps/v1", "StatefulSet", 1)


def test_creating_an_unsupported_kind_names_it_in_the_error() -> None:
    with pytest.raises(ValueError, match="'Service' is not one of Pod, Node, Event, Deployment, StatefulSet"):
        ApiServer().create({"kind": "Service"})


async def test_a_frozen_watch_keeps_everything_for_later(api: ApiServer, client: aiohttp.ClientSession) -> None:
    async with client.get(watch_pods(api)) as watch:
        api.freeze_watches()
        api.create(a_pod("a"))
        api.create(a_pod("b"))
        assert await is_silent(watch)

        api.thaw_watches()
        assert [await next_event(watch) for _ in range(2)] == [("ADDED", "a"), ("ADDED", "b")]


async def test_a_watch_opened_while_frozen_stalls_too(api: ApiServer, client: aiohttp.ClientSession) -> None:
    api.create(a_pod("a"))
    api.freeze_watches()
    async with client.get(watch_pods(api, resourceVersion=0)) as watch:
        assert await is_silent(watch)

        api.thaw_watches()
        assert await next_event(watch) == ("ADDED", "a")


async def test_a_frozen_watch_does_not_end_at_its_timeout(api: ApiServer, client: aiohttp.ClientSession) -> None:
    api.freeze_watches()
    async with client.get(watch_pods(api, timeoutSeconds=1)) as watch:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(1 + STALL_SECONDS):
                await watch.read()


async def test_a_cut_watch_ends_in_the_middle_of_its_answer(api: ApiServer, client: aiohttp.ClientSession) -> None:
    async with client.get(watch_pods(api)) as watch:
        api.create(a_pod("a"))
        assert await next_event(watch) == ("ADDED", "a")

        api.cut_watches()

        with pytest.raises(aiohttp.ClientPayloadError):
            await watch.content.readline()
    api.create(a_pod("b"))
    assert [pod["metadata"]["name"] for pod in api.list_pods()] == ["a", "b"]


async def test_a_watch_cut_with_a_line_on_its_way_is_no_error(
    api: ApiServer, client: aiohttp.ClientSession, caplog: pytest.LogCaptureFixture
) -> None:
    async with client.get(watch_pods(api)) as watch:
        api.freeze_watches()
        api.create(a_pod("a"))
        api.cut_watches()
        api.thaw_watches()
        with pytest.raises(aiohttp.ClientPayloadError):
            await watch.content.readline()

    async with client.get(f"{api.url}/readyz") as response:
        assert response.status == 200
    assert caplog.messages == []


async def test_bookmarks_come_when_asked_for(api: ApiServer, client: aiohttp.ClientSession) -> None:
    async with client.get(watch_pods(api)) as asked, client.get(watch_pods(api, allowWatchBookmarks="false")) as plain:
        api.create({"kind": "Node", "metadata": {"name": "n"}})
        api.send_bookmarks()

        assert await next_event(asked) == ("BOOKMARK", str(api.resource_version))
        assert await is_silent(plain)


async def test_bookmarks_come_by_themselves(client: aiohttp.ClientSession) -> None:
    async with ApiServer(bookmark_seconds=0.05) as api, client.get(watch_pods(api)) as watch:
        assert [await next_event(watch) for _ in range(2)] == [("BOOKMARK", str(api.resource_version))] * 2


async def test_a_quiet_watch_does_not_fall_behind(client: aiohttp.ClientSession) -> None:
    async with ApiServer() as api, client.get(watch_pods(api)) as watch:
        api.create({"kind": "Node", "metadata": {"name": "n"}})
        api.send_bookmarks()
        await next_event(watch)
        api.compact()

        api.create(a_pod("a"))
        assert await next_event(watch) == ("ADDED", "a")


async def test_a_watch_that_falls_behind_gets_an_error_event(client: aiohttp.ClientSession) -> None:
    async with ApiServer(log_length=2) as api, client.get(watch_pods(api)) as watch:
        api.freeze_watches()
        for name in ("a", "b", "c"):
            api.create(a_pod(name))
        api.thaw_watches()

        event = json.loads(await watch.content.readline())
        assert (event["type"], event["object"]["code"]) == ("ERROR", 410)
        assert await watch.content.read() == b""


async def test_a_server_started_again_is_the_same_cluster(client: aiohttp.ClientSession) -> None:
    api = ApiServer()
    async with api:
        url = api.url
        api.create(a_pod("a"))
    with pytest.raises(aiohttp.ClientConnectionError):
        await client.get(f"{url}/readyz")

    async with api, client.get(f"{url}/api/v1/pods") as response:
        assert [item["metadata"]["name"] for item in (await response.json())["items"]] == ["a"]


NOT_SERVED: dict[str, tuple[str, str, str, int]] = {
    "a match of versions": ("GET", "/api/v1/pods?resourceVersionMatch=Exact&resourceVersion=1", "", 400),
    "initial events of a list": ("GET", "/api/v1/pods?sendInitialEvents=true", "", 400),
    "server-side apply": ("PATCH", "/api/v1/nodes/n?fieldManager=me", "application/apply-patch+yaml", 415),
    "a JSON patch": ("PATCH", "/api/v1/nodes/n", "application/json-patch+json", 415),
    "a body in YAML": ("POST", "/api/v1/nodes", "application/yaml", 415),
    "a body in protobuf": ("POST", "/api/v1/nodes", "application/vnd.kubernetes.protobuf", 415),
    "an update": ("PUT", "/api/v1/nodes/n", "application/json", 405),
    "an update of the scale": ("PUT", "/apis/apps/v1/namespaces/a/deployments/d/scale", "application/json", 405),
    "deletion of a collection": ("DELETE", "/api/v1/namespaces/a/pods", "", 405),
    "a port-forward": ("POST", "/api/v1/namespaces/a/pods/p/portforward", "application/json", 404),
    "logs": ("GET", "/api/v1/namespaces/a/pods/p/log", "", 404),
    "namespaces": ("GET", "/api/v1/namespaces", "", 404),
    "replica sets": ("GET", "/apis/apps/v1/replicasets", "", 404),
    "leases": ("GET", "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/n", "", 404),
    "the older schema": ("GET", "/openapi/v2", "", 404),
}


@pytest.mark.parametrize(("method", "path", "form", "code"), NOT_SERVED.values(), ids=NOT_SERVED)
async def test_unserved_requests_are_refused(
    api: ApiServer, client: aiohttp.ClientSession, method: str, path: str, form: str, code: int
) -> None:
    node = api.create({"kind": "Node", "metadata": {"name": "n"}})

    headers = {"Content-Type": form} if form else {}
    async with client.request(method, api.url + path, data=b"{}" if form else None, headers=headers) as response:
        assert response.status == code

    assert api.list_nodes() == [node]


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("/api/v1/namespaces/a/pods/p/log", "no container runs in the embedded cluster"),
        ("/apis/apps/v1/namespaces/a/replicasets", "the embedded cluster has no ReplicaSets"),
        ("/apis/apps/v1/replicasets/r", "the embedded cluster has no ReplicaSets"),
        ("/api/v1/namespaces/a/services", "the server could not find the requested resource"),
    ],
)
async def test_common_unsupported_requests_are_refused_with_a_reason(
    api: ApiServer, client: aiohttp.ClientSession, path: str, text: str
) -> None:
    async with client.get(api.url + path) as response:
        status = await response.json()
    assert (status["code"], status["reason"]) == (404, "NotFound")
    assert status["message"].startswith(text)


async def test_a_request_for_an_unknown_table_version_alone_gets_406(
    api: ApiServer, client: aiohttp.ClientSession
) -> None:
    headers = {"Accept": "application/json;as=Table;v=v9;g=meta.k8s.io"}
    async with client.get(f"{api.url}/api/v1/pods", headers=headers) as response:
        assert response.status == 406


async def test_a_write_that_accepts_only_an_unsupported_format_is_not_made(
    api: ApiServer, client: aiohttp.ClientSession
) -> None:
    """Create, patch and delete: refused before anything happens."""
    before = api.create(a_pod("there"))
    pods, only = f"{api.url}/api/v1/namespaces/default/pods", {"Accept": "text/plain"}
    patch = {"metadata": {"labels": {"a": "b"}}}
    async with client.post(pods, json=a_pod("new"), headers=only) as created:
        assert created.status == 406
    merge = {**only, "Content-Type": "application/merge-patch+json"}
    async with client.patch(f"{pods}/there", data=json.dumps(patch), headers=merge) as patched:
        assert patched.status == 406
    async with client.delete(f"{pods}/there", headers=only) as deleted:
        assert deleted.status == 406
    assert api.list_pods() == [before]


def test_a_scale_has_the_whole_selector() -> None:
    """A selector of expressions alone must not become one that selects everything."""
    selector = {"matchExpressions": [{"key": "app", "operator": "In", "values": ["b", "a"]}]}
    item = {"metadata": {"name": "w"}, "spec": {"replicas": 1, "selector": selector}, "status": {}}
    assert workload_strategy.build_scale(item)["status"]["selector"] == "app in (a,b)"
