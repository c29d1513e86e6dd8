"""An extender that answers by a script and records its calls, for real and embedded schedulers.

Without a rule it passes every node, scores them 10, 5, 1, 0 in the order of their names, and binds by posting
a Binding. A rule, the first that matches, says otherwise. Calls are remembered in the order in which they were
*answered*: a slow bind comes after the filter call that overtook it.
"""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Self, TypeAlias

import aiohttp
from aiohttp import web

LOOPBACK = "127.0.0.1"
PREFIX = "/scripted"
SCORES = (10, 5, 1)

Json: TypeAlias = Any  # Any: bodies are inspected, not modelled


@dataclass(slots=True)
class ScriptedRule:
    """What to answer to calls of one verb, about one pod or (empty) any, so many times or (None) always.

    `refuse` are reasons per node name (`*`: every one) and `answer` a whole body; `status` and `text` take the place of
    a body, `hang_seconds` comes before it, and `is_cut` closes the connection. `binds` False: no Binding is posted.
    """

    verb: str
    pod: str = ""
    times: int | None = None
    refuse: dict[str, str] | None = None
    answer: Json = None
    status: int = 200
    text: str | None = None
    hang_seconds: float = 0.0
    is_cut: bool = False
    binds: bool | None = None

    def matches(self, verb: str, pod: str) -> bool:
        return self.verb == verb and self.pod in ("", pod) and self.times != 0


@dataclass(frozen=True, slots=True)
class ScriptedCall:
    """One call, as it was answered. For bind, `nodes` is the one node."""

    verb: str
    pod: str
    nodes: tuple[str, ...]
    says: str
    """`ok`; for filter `no`, no node left; `error`, what a scheduler takes as a failure; `late`, after the caller gave up."""


@dataclass(eq=False)
class ScriptedExtender:
    """Listens inside its `async with`, on a port of its own unless told. Bindings go to the API server at `api_url`."""

    api_url: str
    headers: dict[str, str] = field(default_factory=dict)
    tls: ssl.SSLContext | None = None
    port: int = 0
    rules: list[ScriptedRule] = field(default_factory=list)
    calls: list[ScriptedCall] = field(default_factory=list)
    bodies: list[Json] = field(default_factory=list)
    """What was sent, in the order of arrival."""
    open_calls: int = 0
    connections: set[int] = field(default_factory=set)
    """The ports that callers came from."""

    async def __aenter__(self) -> Self:
        application = web.Application()
        application.router.add_post(PREFIX + "/{verb}", self._serve)
        self._runner = web.AppRunner(application, handler_cancellation=True, access_log=None, shutdown_timeout=0.1)
        self._client = aiohttp.ClientSession(headers=self.headers)
        await self._runner.setup()
        await web.TCPSite(self._runner, LOOPBACK, self.port).start()
        self.port = self._runner.addresses[0][1]
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def stop(self) -> None:
        """Stops listening."""
        await self._client.close()
        await self._runner.cleanup()

    @property
    def url(self) -> str:
        return f"http://{LOOPBACK}:{self.port}{PREFIX}"

    def calls_of(self, pod: str) -> list[ScriptedCall]:
        return [call for call in self.calls if call.pod == pod]

    async def _serve(self, request: web.Request) -> web.StreamResponse:
        verb, body = request.match_info["verb"], json.loads(await request.read())
        self.bodies.append(body)
        if request.transport is not None:
            self.connections.add(request.transport.get_extra_info("peername")[1])
        self.open_calls += 1
        pod = body["PodName"] if verb == "bind" else body["Pod"]["metadata"]["name"]
        nodes = (body["Node"],) if verb == "bind" else tuple(sorted(body["NodeNames"]))
        rule = self._rule(verb, pod)
        try:
            await asyncio.sleep(rule.hang_seconds)
            return await self._answer(request, rule, body, ScriptedCall(verb, pod, nodes, "ok"))
        except asyncio.CancelledError:
            self.calls.append(ScriptedCall(verb, pod, nodes, "late"))
            raise
        finally:
            self.open_calls -= 1

    def _rule(self, verb: str, pod: str) -> ScriptedRule:
        rule = next((rule for rule in self.rules if rule.matches(verb, pod)), ScriptedRule(verb))
        if rule.times is not None:
            rule.times -= 1
        return rule

    async def _answer(
        self, request: web.Request, rule: ScriptedRule, body: Json, call: ScriptedCall
    ) -> web.StreamResponse:
        answer, is_plain = rule.answer, rule.status == 200 and rule.text is None and not rule.is_cut
        if answer is None and is_plain:
            answer = _usual(call, rule)
        if call.verb == "bind" and (rule.binds if rule.binds is not None else is_plain and not answer.get("Error")):
            await self._bind(body)
        self.calls.append(ScriptedCall(call.verb, call.pod, call.nodes, _meaning(call, answer, is_plain=is_plain)))
        if rule.is_cut and request.transport is not None:
            request.transport.abort()
        text = rule.text if rule.text is not None else json.dumps(answer)
        return web.Response(status=rule.status, text=text, content_type="application/json")

    async def _bind(self, body: Json) -> None:
        namespace, name = body["PodNamespace"], body["PodName"]
        binding = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": name, "namespace": namespace, "uid": body["PodUID"]},
            "target": {"kind": "Node", "name": body["Node"]},
        }
        url = f"{self.api_url}/api/v1/namespaces/{namespace}/pods/{name}/binding"
        async with self._client.post(url, json=binding, ssl=self.tls or True) as response:
            response.raise_for_status()


def _usual(call: ScriptedCall, rule: ScriptedRule) -> Json:
    if call.verb == "bind":
        return {"Error": ""}
    if call.verb == "prioritize":
        scores = [*SCORES, *[0] * len(call.nodes)]
        return [{"Host": node, "Score": score} for node, score in zip(call.nodes, scores, strict=False)]
    return _filtered(call.nodes, rule.refuse or {})


def _filtered(nodes: Sequence[str], refuse: dict[str, str]) -> Json:
    failed = {node: refuse.get(node, refuse.get("*", "")) for node in nodes if node in refuse or "*" in refuse}
    left = [node for node in nodes if node not in failed]
    return {"Nodes": None, "NodeNames": left, "FailedNodes": failed, "FailedAndUnresolvableNodes": {}, "Error": ""}


def _meaning(call: ScriptedCall, answer: Json, *, is_plain: bool) -> str:
    if not is_plain or (isinstance(answer, dict) and answer.get("Error")):
        return "error"
    if call.verb != "filter":
        return "ok"
    left = answer.get("NodeNames") or []
    if set(left) - set(call.nodes):
        return "error"
    return "ok" if left else "no"
