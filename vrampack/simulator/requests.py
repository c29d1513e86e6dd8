"""What a request says: the place in its path, its query parameters, its body. What cannot be read is refused."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
from aiohttp import web

from vrampack.simulator import errors
from vrampack.simulator.kinds import Object
from vrampack.simulator.merge import Merge, merge, strategic_merge

MERGES: dict[str, Merge] = {
    "application/merge-patch+json": merge,
    "application/strategic-merge-patch+json": strategic_merge,
}
BODY_FORMS = ("application/json", "application/octet-stream", "")
"""JSON, and what a client says that says nothing."""


def place(request: web.Request) -> tuple[str, str]:
    """Namespace (empty for what has none) and name."""
    return request.match_info.get("namespace", ""), request.match_info["name"]


def number(request: web.Request, parameter: str) -> int:
    text = request.query.get(parameter) or "0"
    try:
        return int(text)
    except ValueError as error:
        raise errors.bad_request(f'strconv.ParseInt: parsing "{text}": invalid syntax') from error


def version(request: web.Request) -> int:
    text = request.query.get("resourceVersion") or "0"
    if not text.isdecimal():
        raise errors.bad_request(f'invalid resource version: resourceVersion: Invalid value: "{text}"')
    return int(text)


def wants_initial(query: Mapping[str, str]) -> bool:
    """`sendInitialEvents`: begin with what is there, whatever the version."""
    is_given, match = "sendInitialEvents" in query, query.get("resourceVersionMatch")
    if match and not is_given:
        why = "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided"
        raise errors.forbidden_option("ListOptions", "resourceVersionMatch", why)
    if is_given and match != "NotOlderThan":
        why = "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"
        raise errors.forbidden_option("ListOptions", "resourceVersionMatch", why)
    if is_given and query["sendInitialEvents"] not in ("true", "1"):
        raise errors.bad_request("the embedded API server does not serve sendInitialEvents=false")
    return is_given


async def patch(request: web.Request) -> tuple[Merge, Object]:
    how = MERGES.get(request.content_type)
    if how is None:
        raise errors.unsupported_media_type()
    return how, await _object(request, "patch")


async def body(request: web.Request, what: str) -> Object:
    if request.content_type not in BODY_FORMS:
        raise errors.unknown_body_form()
    return await _object(request, what)


async def _object(request: web.Request, what: str) -> Object:
    try:
        body = msgspec.json.decode(await request.read())
    except msgspec.DecodeError as error:
        raise errors.bad_request(f"error decoding {what}: {error}") from error
    if not isinstance(body, dict):
        raise errors.bad_request(f"error decoding {what}: not a JSON object")
    return body
