"""What the API server refuses with: one exception, and one function per form the real server uses.

Messages follow the real ones (1.36) where a person or a program reads them; the contract tests hold `code`,
`reason` and `details` to it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from http import HTTPStatus

from simulator.kinds import Kind, Object


class StatusError(Exception):
    """A refusal, as the body that goes over the wire."""

    def __init__(
        self,
        code: int,
        reason: str,
        message: str,
        *,
        details: Mapping[str, object] | None = None,
        metadata: Mapping[str, object] | None = None,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason
        self.message = message
        self._details = details
        self._metadata = dict(metadata or {})

    def status(self) -> Object:
        """The body, its keys in the real server's order; what is not there is left out, not null."""
        body: Object = {"kind": "Status", "apiVersion": "v1", "metadata": self._metadata, "status": "Failure"}
        body["message"] = self.message
        if self.reason:
            body["reason"] = self.reason
        if self._details is not None:
            body["details"] = dict(self._details)
        return body | {"code": self.code}


def not_found(kind: Kind, name: str) -> StatusError:
    details = {"name": name, "kind": kind.plural}
    return StatusError(HTTPStatus.NOT_FOUND, "NotFound", f'{kind.plural} "{name}" not found', details=details)


def no_such_resource() -> StatusError:
    message = "the server could not find the requested resource"
    return StatusError(HTTPStatus.NOT_FOUND, "NotFound", message, details={})


def method_not_allowed() -> StatusError:
    message = "the server does not allow this method on the requested resource"
    return StatusError(HTTPStatus.METHOD_NOT_ALLOWED, "MethodNotAllowed", message, details={})


def unsupported_media_type() -> StatusError:
    message = "415: Unsupported Media Type"
    return StatusError(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "UnsupportedMediaType", message, details={})


def too_large(limit_bytes: int) -> StatusError:
    message = f"Request entity too large: limit is {limit_bytes}"
    return StatusError(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "RequestEntityTooLarge", message, details={})


def already_exists(kind: Kind, name: str) -> StatusError:
    details = {"name": name, "kind": kind.plural}
    return StatusError(HTTPStatus.CONFLICT, "AlreadyExists", f'{kind.plural} "{name}" already exists', details=details)


def conflict(what: str, name: str, why: str) -> StatusError:
    """`what` is `pods`, `pods/binding` or, for a delete, `Pod`: the real server is not of one mind either."""
    message = f'Operation cannot be fulfilled on {what} "{name}": {why}'
    return StatusError(HTTPStatus.CONFLICT, "Conflict", message, details={"name": name, "kind": what})


def bad_request(message: str) -> StatusError:
    return StatusError(HTTPStatus.BAD_REQUEST, "BadRequest", message)


def invalid(kind: Kind, name: str, causes: Sequence[tuple[str, str, str]]) -> StatusError:
    """`causes` are (reason, message, field), e.g. `("FieldValueRequired", "Required value", "spec.containers")`."""
    listed = [{"reason": reason, "message": message, "field": field} for reason, message, field in causes]
    told = [f"{field}: {message}" for _, message, field in causes]
    text = told[0] if len(told) == 1 else f"[{', '.join(told)}]"
    return StatusError(
        HTTPStatus.UNPROCESSABLE_ENTITY,
        "Invalid",
        f'{kind.name} "{name}" is invalid: {text}',
        details={"name": name, "kind": kind.name, "causes": listed},
    )


def expired(message: str) -> StatusError:
    return StatusError(HTTPStatus.GONE, "Expired", message)


def version_too_large(asked: int, current: int) -> StatusError:
    """A list that must be at least as new as a version that does not exist yet."""
    causes = [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}]
    return StatusError(
        HTTPStatus.GATEWAY_TIMEOUT,
        "Timeout",
        f"Timeout: Too large resource version: {asked}, current: {current}",
        details={"causes": causes, "retryAfterSeconds": 1},
    )


def internal(message: str) -> StatusError:
    """The real server's answer where a validation error was not wrapped: 500 without a reason."""
    return StatusError(HTTPStatus.INTERNAL_SERVER_ERROR, "", message)
