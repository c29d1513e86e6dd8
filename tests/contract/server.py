"""One API server as the contract sees it: a URL, a namespace of the test's own, and plain HTTP calls."""

from __future__ import annotations

import asyncio
import io
import itertools
import json
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any, Literal, TypeAlias

import aiohttp

Json: TypeAlias = Any
"""Whatever came back: tests read single fields of many kinds of objects, each asserted where it is read."""

MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"
"""What kubectl takes when it prints."""
Workload: TypeAlias = Literal["statefulsets", "deployments"]
PATIENCE = aiohttp.ClientTimeout(total=30)


class ContractServer:
    """The calls of one test. Nodes it makes are deleted after it; no other test uses its namespace."""

    def __init__(
        self,
        session: aiohttp.ClientSession,
        url: str,
        *,
        namespace: str,
        forget: Callable[[], Awaitable[None]],
        tls: ssl.SSLContext | bool = True,
    ) -> None:
        self.namespace = namespace
        self.pods = f"/api/v1/namespaces/{namespace}/pods"
        self.events = f"/api/v1/namespaces/{namespace}/events"
        self.statefulsets = f"/apis/apps/v1/namespaces/{namespace}/statefulsets"
        self.deployments = f"/apis/apps/v1/namespaces/{namespace}/deployments"
        self.forget = forget
        """Lose the history: every resourceVersion that was ever answered is too old afterwards."""
        self.made_nodes: list[str] = []
        self._session = session
        self._url = url
        self._tls = tls
        self._count = itertools.count(1)

    async def call(
        self,
        method: str,
        path: str,
        body: Json = None,
        *,
        content_type: str = "application/json",
        accept: str = "*/*",
        **query: object,
    ) -> tuple[int, Json]:
        """The status, and the answer parsed (as text where it is not JSON). `bytes` are sent as they are."""
        payload = body if isinstance(body, bytes) else None if body is None else json.dumps(body).encode()
        async with self._session.request(
            method,
            self._url + path,
            data=None if payload is None else io.BytesIO(payload),
            params={key.rstrip("_"): str(value) for key, value in query.items()},
            headers={"Content-Type": content_type, "Accept": accept},
            ssl=self._tls,
            timeout=PATIENCE,
        ) as response:
            is_json = response.content_type == "application/json"
            return response.status, await response.json() if is_json else await response.text()

    async def call_ok(self, method: str, path: str, body: Json = None, **options: Any) -> Json:  # noqa: ANN401 - as call
        """`call` where anything but success breaks the test's set-up."""
        status, answer = await self.call(method, path, body, **options)
        assert status < 300, f"{method} {path}: {status} {answer}"
        return answer

    async def a_pod(self, name: str = "", **metadata: object) -> Json:
        """A new unbound pod asking for 4 units."""
        return await self.call_ok("POST", self.pods, pod(name or f"p-{next(self._count)}", **metadata))

    async def a_bound_pod(self, name: str = "", *, node: str = "nowhere", **metadata: object) -> Json:
        made = await self.a_pod(name, **metadata)
        await self.call_ok("POST", f"{self.path(made)}/binding", binding(made, node=node))
        return await self.call_ok("GET", self.path(made))

    async def a_node(self, **status: object) -> Json:
        """A new node, its name unlike any other test's."""
        name = f"{self.namespace}-{next(self._count)}"
        self.made_nodes.append(name)
        return await self.call_ok("POST", "/api/v1/nodes", {"metadata": {"name": name}, "status": status})

    async def a_workload(self, kind: Workload, name: str, **spec: object) -> Json:
        """A new StatefulSet or Deployment whose pods carry the label `app` with its name."""
        return await self.call_ok("POST", self.workloads(kind), workload(name, **spec))

    def workloads(self, kind: Workload) -> str:
        return {"statefulsets": self.statefulsets, "deployments": self.deployments}[kind]

    async def pods_become(self, condition: Callable[[list[Json]], bool], **query: Json) -> list[Json]:
        """The namespace's pods, sorted by name, as soon as they satisfy the condition."""
        return await self.wait_for_state(self.pods, condition, **query)

    async def wait_for_state(self, path: str, condition: Callable[[list[Json]], bool], **query: Json) -> list[Json]:
        """Follow a collection from now on until its objects satisfy the condition."""
        page = await self.call_ok("GET", path, **query)
        known = {item["metadata"]["name"]: item for item in page["items"]}
        async with self.watch(path, resourceVersion=page["metadata"]["resourceVersion"], **query) as watch:
            while not condition(items := [known[name] for name in sorted(known)]):
                event = await watch.read_line()
                known[event["object"]["metadata"]["name"]] = event["object"]
                if event["type"] == "DELETED":
                    del known[event["object"]["metadata"]["name"]]
        return items

    async def make_ready(self, item: Json) -> None:
        """What a kubelet would report of a pod whose containers run."""
        status = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
        await self.call_ok("PATCH", f"{self.path(item)}/status", {"status": status}, content_type=STRATEGIC)

    def path(self, item: Json) -> str:
        """Where a pod or a workload of this namespace, or a node, is found."""
        name = item["metadata"]["name"]
        if item.get("kind") in ("StatefulSet", "Deployment"):
            return f"{self.statefulsets if item['kind'] == 'StatefulSet' else self.deployments}/{name}"
        return f"{self.pods}/{name}" if "namespace" in item["metadata"] else f"/api/v1/nodes/{name}"

    async def annotate(self, item: Json, **annotations: str | None) -> Json:
        patch = {"metadata": {"annotations": annotations}}
        return await self.call_ok("PATCH", self.path(item), patch, content_type=MERGE)

    async def delete_object(self, item: Json) -> None:
        await self.call_ok("DELETE", self.path(item), gracePeriodSeconds=0)

    async def version(self) -> str:
        """A resourceVersion to watch from: what a list of this namespace's pods says now."""
        return str((await self.call_ok("GET", self.pods))["metadata"]["resourceVersion"])

    @asynccontextmanager
    async def watch(self, path: str, *, accept: str = "*/*", **query: Json) -> AsyncIterator[WatchLines]:
        """An open watch; it ends by itself after 20 s, long after any test is done with it."""
        params = {"watch": "true", "timeoutSeconds": 20} | query
        async with self._session.get(
            self._url + path,
            params={key: str(value) for key, value in params.items()},
            headers={"Accept": accept},
            ssl=self._tls,
            timeout=PATIENCE,
        ) as response:
            assert response.status == 200, await response.text()
            yield WatchLines(response)


class WatchLines:
    """What a watch reports, one event after the other."""

    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self._response = response

    async def read_line(self) -> Json:
        async with asyncio.timeout(10):
            line = await self._response.content.readline()
        assert line, "the watch ended"
        return json.loads(line)

    async def read_lines(self, count: int) -> list[Json]:
        return [await self.read_line() for _ in range(count)]

    async def read_rest(self) -> list[Json]:
        """Everything until the server ends the watch."""
        return [json.loads(line) async for line in self._response.content]


def pod(name: str, **metadata: object) -> Json:
    limits = {"aliyun.com/gpu-mem": 4}
    container = {"name": "main", "image": "example.com/app:1", "resources": {"limits": limits}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, **metadata},
        "spec": {"containers": [container]},
    }


def workload(name: str, **spec: object) -> Json:
    """The body of a StatefulSet or a Deployment, asking for 4 units a pod; the URL says which of the two."""
    template = {"metadata": {"labels": {"app": name}}, "spec": pod("")["spec"]}
    return {
        "metadata": {"name": name},
        "spec": {"selector": {"matchLabels": {"app": name}}, "template": template, **spec},
    }


def binding(pod: Json, *, node: str = "nowhere", **metadata: object) -> Json:
    return {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": pod["metadata"]["name"], **metadata},
        "target": {"apiVersion": "v1", "kind": "Node", "name": node},
    }


def eviction(pod: Json, **preconditions: str) -> Json:
    return {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": pod["metadata"]["name"]},
        "deleteOptions": {"preconditions": preconditions or {"uid": pod["metadata"]["uid"]}},
    }


def names(answer: Json) -> list[str]:
    return [item["metadata"]["name"] for item in answer["items"]]


def describe_events(events: list[Json]) -> list[tuple[str, str]]:
    """Each event's type and the name of its object."""
    return [(event["type"], event["object"]["metadata"]["name"]) for event in events]


def without_managed_fields(item: Json) -> Json:
    """Only the real server keeps field owners, and no test here reads them."""
    metadata: Mapping[str, Json] = item["metadata"]
    return item | {"metadata": {key: value for key, value in metadata.items() if key != "managedFields"}}


def assert_refused(
    answer: tuple[int, Json], code: int, reason: str | None, text: str, *, details: Mapping[str, Json] | None = None
) -> None:
    """The real server's Status form; `details` are those that must be among the answer's."""
    status, body = answer
    assert status == code, body
    assert {key: body.get(key) for key in ("kind", "apiVersion", "status", "reason", "code")} == {
        "kind": "Status",
        "apiVersion": "v1",
        "status": "Failure",
        "reason": reason,
        "code": code,
    }
    assert "metadata" in body
    assert text in body["message"], body
    if details is not None:
        assert {key: body["details"].get(key) for key in details} == details
