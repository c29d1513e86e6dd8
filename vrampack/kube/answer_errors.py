"""Maps an answer of the API server to an error."""

from __future__ import annotations

from http import HTTPStatus

import msgspec

from vrampack.kube.errors import NoAnswerError, RefusedError, ResourceExpiredError
from vrampack.kube.objects import UNDECODABLE, Status

TOO_LARGE_FOR_ETCD = ("etcdserver: request is too large", "trying to send message larger than max")
"""The messages of etcd, and of the API server's etcd client, for an object that is too large; the status varies."""


def build_answer_error(code: int, body: bytes) -> Exception:
    """The error for an HTTP status and the Status in the body: refused, expired, or no definite answer."""
    try:
        status = msgspec.json.decode(body, type=Status)
    except UNDECODABLE:
        status = Status(message=body[:200].decode(errors="replace"))
    if code == HTTPStatus.GONE:
        return ResourceExpiredError(code, status.reason, status.message)
    is_too_large = any(text in status.message for text in TOO_LARGE_FOR_ETCD)
    if is_too_large or HTTPStatus.BAD_REQUEST <= code < HTTPStatus.INTERNAL_SERVER_ERROR:
        code = HTTPStatus.REQUEST_ENTITY_TOO_LARGE if is_too_large else code
        return RefusedError(code, status.reason, status.message)
    return NoAnswerError(f"{code} {status.reason}: {status.message}")
