"""TokenReview, SubjectAccessReview, SelfSubjectAccessReview: to which account a token belongs, and what an account may do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from vrampack.kube.answers import decode_answer
from vrampack.kube.client import Api
from vrampack.kube.objects import AccessReview


class ReviewedUser(msgspec.Struct, frozen=True):
    """An account, as the API server knows it."""

    username: str = ""
    uid: str = ""
    groups: Sequence[str] = ()
    extra: Mapping[str, Sequence[str]] = {}


class TokenReviewStatus(msgspec.Struct, frozen=True):
    """The result of a TokenReview."""

    is_authenticated: bool = msgspec.field(name="authenticated", default=False)
    user: ReviewedUser = ReviewedUser()


class TokenReviewAnswer(msgspec.Struct, frozen=True):
    """The answer to a TokenReview."""

    status: TokenReviewStatus = TokenReviewStatus()


async def may_token_read_page(api: Api, token: str, path: str, *, timeout_seconds: float) -> bool | None:
    """Whether the holder of this token may `get` this non-resource URL; None for a token that the API server does not know.

    Raises `RefusedError` if this account may not create reviews, and `NoAnswerError`.
    """
    answer = await api.create_review(
        "authentication.k8s.io", "TokenReview", "tokenreviews", {"token": token}, timeout_seconds=timeout_seconds
    )
    status = decode_answer(answer, TokenReviewAnswer, "create tokenreviews").status
    if not status.is_authenticated:
        return None
    user = status.user
    spec = {
        "user": user.username,
        "uid": user.uid,
        "groups": user.groups,
        "extra": user.extra,
        "nonResourceAttributes": {"path": path, "verb": "get"},
    }
    return await review_access(api, "SubjectAccessReview", spec, timeout_seconds=timeout_seconds)


async def may_i(api: Api, verb: str, resource: str, *, timeout_seconds: float) -> bool:
    """Whether our own account may make this call for the core objects of all namespaces; `resource` as `pods/binding`.

    Raises `RefusedError` if it may not even ask, or is not known, and `NoAnswerError`.
    """
    resource, _, subresource = resource.partition("/")
    attributes = {"verb": verb, "resource": resource, "subresource": subresource}
    spec = {"resourceAttributes": attributes}
    return await review_access(api, "SelfSubjectAccessReview", spec, timeout_seconds=timeout_seconds)


async def review_access(api: Api, kind: str, spec: Mapping[str, object], *, timeout_seconds: float) -> bool:
    """Whether the account of this review, `SubjectAccessReview` or `SelfSubjectAccessReview`, is allowed what it names."""
    resource = f"{kind.lower()}s"
    answer = await api.create_review("authorization.k8s.io", kind, resource, spec, timeout_seconds=timeout_seconds)
    return decode_answer(answer, AccessReview, f"create {resource}").status.allowed
