"""The API server's refusals: one exception, and one function for each form that the real server uses.

Messages follow the real ones (1.36) if a person or a program reads them; the contract tests check `code`, `reason` and
`details` against the real server.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from http import HTTPStatus

from vrampack.simulator.resource_kinds import Object, ResourceKind


class StatusError(Exception):
    """A refusal, with the fields of its response body."""

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

    def build_status(self) -> Object:
        """The body, with keys in the real server's order; missing fields are left out, not null."""
        body: Object = {"kind": "Status", "apiVersion": "v1", "metadata": self._metadata, "status": "Failure"}
        body["message"] = self.message
        if self.reason:
            body["reason"] = self.reason
        if self._details is not None:
            body["details"] = dict(self._details)
        return body | {"code": self.code}


def not_found(kind: ResourceKind, name: str) -> StatusError:
    message = f'{kind.qualified_plural} "{name}" not found'
    return StatusError(HTTPStatus.NOT_FOUND, "NotFound", message, details=_build_details(kind, name, kind.plural))


def no_such_resource(reason: str = "") -> StatusError:
    """`reason` says why the embedded server lacks what a real one has."""
    message = reason or "the server could not find the requested resource"
    return StatusError(HTTPStatus.NOT_FOUND, "NotFound", message, details={})


def method_not_allowed() -> StatusError:
    message = "the server does not allow this method on the requested resource"
    return StatusError(HTTPStatus.METHOD_NOT_ALLOWED, "MethodNotAllowed", message, details={})


def unsupported_media_type() -> StatusError:
    message = "415: Unsupported Media Type"
    return StatusError(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "UnsupportedMediaType", message, details={})


def unknown_body_format() -> StatusError:
    message = (
        "the body of the request was in an unknown format - accepted media types include: application/json "
        "(the embedded API server reads no other)"
    )
    return StatusError(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "UnsupportedMediaType", message)


def not_acceptable(accepted: str) -> StatusError:
    message = f"only the following media types are accepted: {accepted}"
    return StatusError(HTTPStatus.NOT_ACCEPTABLE, "NotAcceptable", message)


def too_large(limit_bytes: int) -> StatusError:
    message = f"Request entity too large: limit is {limit_bytes}"
    return StatusError(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "RequestEntityTooLarge", message, details={})


def already_exists(kind: ResourceKind, name: str) -> StatusError:
    message = f'{kind.qualified_plural} "{name}" already exists'
    return StatusError(HTTPStatus.CONFLICT, "AlreadyExists", message, details=_build_details(kind, name, kind.plural))


def conflict(resource: str, name: str, reason: str, *, group: str = "") -> StatusError:
    """`resource` is `pods`, `pods/binding` or, for a delete, `Pod`, as inconsistent as in the real server."""
    message = f'Operation cannot be fulfilled on {resource}{"." * bool(group)}{group} "{name}": {reason}'
    details = {"name": name, "group": group, "kind": resource} if group else {"name": name, "kind": resource}
    return StatusError(HTTPStatus.CONFLICT, "Conflict", message, details=details)


def bad_request(message: str) -> StatusError:
    return StatusError(HTTPStatus.BAD_REQUEST, "BadRequest", message)


def invalid(kind: ResourceKind, name: str, causes: Sequence[tuple[str, str, str]]) -> StatusError:
    """`causes` are (reason, message, field), e.g. `("FieldValueRequired", "Required value", "spec.containers")`."""
    listed = [{"reason": reason, "message": message, "field": field} for reason, message, field in causes]
    told = [f"{field}: {message}" for _, message, field in causes]
    text = told[0] if len(told) == 1 else f"[{', '.join(told)}]"
    return StatusError(
        HTTPStatus.UNPROCESSABLE_ENTITY,
        "Invalid",
        f'{kind.qualified_name} "{name}" is invalid: {text}',
        details={**_build_details(kind, name, kind.name), "causes": listed},
    )


def invalid_option(options: str, field: str, value: str, supported: str) -> StatusError:
    """An unsupported value of an option in the query or body; `options` is `CreateOptions`, `ListOptions`, ..."""
    return _invalid_list_option(
        options, field, "FieldValueNotSupported", f"Unsupported value: {value}: supported values: {supported}"
    )


def forbidden_option(options: str, field: str, reason: str) -> StatusError:
    return _invalid_list_option(options, field, "FieldValueForbidden", f"Forbidden: {reason}")


def _invalid_list_option(options: str, field: str, reason: str, message: str) -> StatusError:
    causes = [{"reason": reason, "message": message, "field": field}]
    return StatusError(
        HTTPStatus.UNPROCESSABLE_ENTITY,
        "Invalid",
        f'{options}.meta.k8s.io "" is invalid: {field}: {message}',
        details={"group": "meta.k8s.io", "kind": options, "causes": causes},
    )


def expired(message: str) -> StatusError:
    return StatusError(HTTPStatus.GONE, "Expired", message)


def version_too_large(asked: int, current: int) -> StatusError:
    """For a list that must be at least as new as a version that does not exist yet."""
    causes = [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}]
    return StatusError(
        HTTPStatus.GATEWAY_TIMEOUT,
        "Timeout",
        f"Timeout: Too large resource version: {asked}, current: {current}",
        details={"causes": causes, "retryAfterSeconds": 1},
    )


def internal(message: str) -> StatusError:
    """The real server's answer for a validation error that it does not wrap: 500 without a reason."""
    return StatusError(HTTPStatus.INTERNAL_SERVER_ERROR, "", message)


def _build_details(kind: ResourceKind, name: str, kind_name: str) -> Object:
    """The details, without the core group's name, as everywhere."""
    group = {"group": kind.group} if kind.group else {}
    return {"name": name, **group, "kind": kind_name}
