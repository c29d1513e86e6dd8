"""TokenReview and SubjectAccessReview: to which account a token belongs, and whether RBAC lets it read a page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from vrampack.kube.client import Api
from vrampack.kube.errors import NoAnswerError
from vrampack.kube.objects import UNDECODABLE, AccessReview


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
    try:
        status = msgspec.json.decode(answer, type=TokenReviewAnswer).status
    except UNDECODABLE as error:
        raise NoAnswerError(f"create tokenreviews: {error}") from error
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
    answer = await api.create_review(
        "authorization.k8s.io", "SubjectAccessReview", "subjectaccessreviews", spec, timeout_seconds=timeout_seconds
    )
    try:
        return msgspec.json.decode(answer, type=AccessReview).status.allowed
    except UNDECODABLE as error:
        raise NoAnswerError(f"create subjectaccessreviews: {error}") from error
