"""An API server with canned answers on loopback, for any path a test gives it, including logs and pages of pods."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, Self

from aiohttp import web

from vrampack.simulator.apiserver import LOOPBACK

Object = dict[str, Any]  # Any: raw API objects
Answer = Sequence[Object] | Object | str
"""A list, one object, or text."""


class ScriptedCluster:
    """Answers by path, 404 for the rest. `refused` answers 403, `denied` are the resources that no account may touch."""

    def __init__(
        self, answers: Mapping[str, Answer], *, refused: Sequence[str] = (), denied: Sequence[str] = ()
    ) -> None:
        self.answers = answers
        self.patches: list[Object] = []
        """Bodies of the patches, each of which was answered with the object as it is."""
        self._refused = refused
        self._denied = denied

    async def __aenter__(self) -> Self:
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", self._answer)
        self._runner = web.AppRunner(app, access_log=None)
        await self._runner.setup()
        await web.TCPSite(self._runner, LOOPBACK, 0).start()
        self.url = f"http://{LOOPBACK}:{self._runner.addresses[0][1]}"
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._runner.cleanup()

    async def _answer(self, request: web.Request) -> web.Response:
        if request.path in self._refused:
            return web.json_response(_build_refusal(403, "Forbidden"), status=403)
        if request.path.endswith("/subjectaccessreviews"):
            asked = (await request.json())["spec"]["resourceAttributes"]
            status = {"allowed": asked["resource"] not in self._denied}
            return web.json_response({"kind": "SubjectAccessReview", "status": status}, status=201)
        if request.method == "PATCH":
            self.patches.append(json.loads(await request.read()))
        answer = self.answers.get(request.path)
        if answer is None:
            return web.json_response(_build_refusal(404, "NotFound"), status=404)
        if isinstance(answer, str):
            return web.Response(text=answer)
        return web.json_response(answer if isinstance(answer, Mapping) else _build_list(answer))


def _build_list(items: Sequence[Object]) -> Object:
    return {"kind": "List", "metadata": {"resourceVersion": "1"}, "items": list(items)}


def _build_refusal(code: int, reason: str) -> Object:
    return {"kind": "Status", "status": "Failure", "code": code, "reason": reason, "message": f"it is {reason}"}
