"""Decodes a request: namespace and name, query parameters, body. What cannot be decoded is refused."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
from aiohttp import web

from vrampack.simulator import errors
from vrampack.simulator.patches import PatchFunction, apply_merge_patch, apply_strategic_merge_patch
from vrampack.simulator.resource_kinds import Object

PATCH_TYPES: dict[str, PatchFunction] = {
    "application/merge-patch+json": apply_merge_patch,
    "application/strategic-merge-patch+json": apply_strategic_merge_patch,
}
BODY_CONTENT_TYPES = ("application/json", "application/octet-stream", "")
"""JSON, and what clients send that do not choose a type."""


def parse_namespaced_name(request: web.Request) -> tuple[str, str]:
    """The namespace, empty for kinds without one, and the name."""
    return request.match_info.get("namespace", ""), request.match_info["name"]


def parse_number(request: web.Request, parameter: str) -> int:
    text = request.query.get(parameter) or "0"
    try:
        return int(text)
    except ValueError as error:
        raise errors.bad_request(f'strconv.ParseInt: parsing "{text}": invalid syntax') from error


def parse_resource_version(request: web.Request) -> int:
    text = request.query.get("resourceVersion") or "0"
    if not text.isdecimal():
        raise errors.bad_request(f'invalid resource version: resourceVersion: Invalid value: "{text}"')
    return int(text)


def parse_send_initial_events(query: Mapping[str, str]) -> bool:
    """`sendInitialEvents`: whether to begin with all existing objects, whatever the version."""
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


async def read_patch(request: web.Request) -> tuple[PatchFunction, Object]:
    how = PATCH_TYPES.get(request.content_type)
    if how is None:
        raise errors.unsupported_media_type()
    return how, await _decode_object(request, "patch")


async def read_body(request: web.Request, expected_kind: str) -> Object:
    if request.content_type not in BODY_CONTENT_TYPES:
        raise errors.unknown_body_format()
    return await _decode_object(request, expected_kind)


async def _decode_object(request: web.Request, expected_kind: str) -> Object:
    try:
        body = msgspec.json.decode(await request.read())
    except msgspec.DecodeError as error:
        raise errors.bad_request(f"error decoding {expected_kind}: {error}") from error
    if not isinstance(body, dict):
        raise errors.bad_request(f"error decoding {expected_kind}: not a JSON object")
    return body
