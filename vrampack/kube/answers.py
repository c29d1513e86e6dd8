"""Decides whether a reply is the API server's word, and what it says. Between it and us may be balancers, proxies and firewalls.

The API server answers with the object that was asked for, or with a `Status`. Any other reply is no answer: a balancer that
finds no server says 404, too, and a page of HTML can come with 200. The one exception is 429, which the API server's
overload protection says in plain text, and which no server says after it has done something. Lists are checked by
`vrampack.cards.list_answer`, which the kubectl plugin contains too.
"""

from __future__ import annotations

from http import HTTPStatus
from typing import TypeVar

import msgspec

from vrampack.kube.decoding import UNDECODABLE
from vrampack.kube.errors import (
    ForeignAnswerError,
    NoAnswerError,
    RefusedError,
    ResourceExpiredError,
    UnknownPathError,
)
from vrampack.kube.objects import Status

TOO_LARGE_FOR_ETCD = ("etcdserver: request is too large", "trying to send message larger than max")
"""The messages of etcd, and of the API server's etcd client, for an object that is too large; the status varies."""
QUOTED_BYTES = 200
"""Of a reply that is no answer."""
MAX_RETRY_AFTER_SECONDS = 30
"""No reply makes us wait longer than our own longest pause: a ledger that hears nothing for 120 s counts as stale."""

Answer = TypeVar("Answer", bound=msgspec.Struct)


class _Metadata(msgspec.Struct):
    name: str = ""


class _Answer(msgspec.Struct):
    kind: str = ""
    metadata: _Metadata | None = None
    status: msgspec.Raw = msgspec.Raw()


def build_answer_error(code: int, body: bytes, *, retry_after: str = "") -> Exception:
    """The error for a reply that is not 2xx: refused, expired, or no definite answer. `retry_after` is its Retry-After."""
    status = _decode_status(body)
    after = _read_retry_after(code, retry_after)
    if status is None:
        if code == HTTPStatus.TOO_MANY_REQUESTS:
            return RefusedError(code, "", _quote(body), retry_after_seconds=after)
        kind = UnknownPathError if code == HTTPStatus.NOT_FOUND else ForeignAnswerError
        return kind(f"{code}, but not from the API server: {_quote(body)}", retry_after_seconds=after)
    if code == HTTPStatus.GONE:
        return ResourceExpiredError(code, status.reason, status.message)
    is_too_large = any(text in status.message for text in TOO_LARGE_FOR_ETCD)
    if is_too_large or HTTPStatus.BAD_REQUEST <= code < HTTPStatus.INTERNAL_SERVER_ERROR:
        code = HTTPStatus.REQUEST_ENTITY_TOO_LARGE if is_too_large else code
        details = status.details
        subject = f"{details.kind}/{details.name}" if details else ""
        return RefusedError(code, status.reason, status.message, subject=subject, retry_after_seconds=after)
    return NoAnswerError(f"{code} {status.reason}: {status.message}", retry_after_seconds=after)


def limit_retry_after(seconds: int) -> float:
    """How long to wait if the API server asks for this pause."""
    return float(min(max(0, seconds), MAX_RETRY_AFTER_SECONDS))


def check_answer(call: str, code: int, body: bytes, wanted: tuple[str, str] | None, *, retry_after: str = "") -> None:
    """Raise the error for a reply that is not the object of the `wanted` kind and name; None for a list, which its reader checks."""
    if not HTTPStatus.OK <= code < HTTPStatus.MULTIPLE_CHOICES:
        raise build_answer_error(code, body, retry_after=retry_after)
    if wanted is not None and not is_answer(body, *wanted):
        raise ForeignAnswerError(f"{call}: {code}, but no {' '.join(wanted).rstrip()} of the API server")


def decode_answer(body: bytes, kind: type[Answer], call: str) -> Answer:
    """Raises `NoAnswerError` for a body that is not an object of this kind."""
    try:
        return msgspec.json.decode(body, type=kind)
    except UNDECODABLE as error:
        raise NoAnswerError(f"{call}: {error}") from error


def is_answer(body: bytes, kind: str, name: str) -> bool:
    """Whether a 2xx reply is an object of this kind and, unless that is empty, this name; a `Status` must be of success."""
    try:
        answer = msgspec.json.decode(body, type=_Answer)
    except UNDECODABLE:
        return False
    if kind == "Status":
        return answer.kind == kind and bytes(answer.status) == b'"Success"'
    return answer.kind == kind and (not name or (answer.metadata is not None and answer.metadata.name == name))


def _read_retry_after(code: int, text: str) -> float:
    """The pause that a reply asks for. As in client-go, 429 and 5xx may ask, in whole seconds; a date is ignored."""
    may_ask = code == HTTPStatus.TOO_MANY_REQUESTS or code >= HTTPStatus.INTERNAL_SERVER_ERROR
    is_number = text.isascii() and text.isdigit()
    return limit_retry_after(int(text[:9])) if may_ask and is_number else 0.0


def _quote(body: bytes) -> str:
    return body[:QUOTED_BYTES].decode(errors="replace")


def _decode_status(body: bytes) -> Status | None:
    try:
        status = msgspec.json.decode(body, type=Status)
    except UNDECODABLE:
        return None
    return status if status.kind == "Status" else None
