"""The calls of `vrampack support-bundle` that no running program makes: any path, and what an account may do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from vrampack.kube.client import Api
from vrampack.kube.errors import NoAnswerError
from vrampack.kube.objects import UNDECODABLE, AccessReview


class DiagnosticApi(Api):
    """One API server, read by a person who looks for a fault."""

    async def read_path(
        self,
        path: str,
        *,
        resource: str,
        query: Mapping[str, str] | None = None,
        timeout_seconds: float,
        max_bytes: int,
    ) -> bytes:
        """Whatever lies there, of which at most `max_bytes` are read: a list of any kind, a log, a page that a pod serves.

        `resource` is what errors call it. Raises `RefusedError` or `NoAnswerError`.
        """
        return await self._call(
            "GET", path, verb="get", resource=resource, query=query, seconds=timeout_seconds, max_bytes=max_bytes
        )

    async def review_access(self, user: str, groups: Sequence[str], *, attributes: Mapping[str, str]) -> bool:
        """Whether this user may do what the attributes of a SubjectAccessReview name. Nothing is done.

        Raises `RefusedError` or `NoAnswerError`.
        """
        resource = "subjectaccessreviews"
        body = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SubjectAccessReview",
            "spec": {"user": user, "groups": list(groups), "resourceAttributes": dict(attributes)},
        }
        path = f"/apis/authorization.k8s.io/v1/{resource}"
        answer = await self._call("POST", path, verb="create", resource=resource, body=body)
        try:
            return msgspec.json.decode(answer, type=AccessReview).status.allowed
        except UNDECODABLE as error:
            raise NoAnswerError(f"create {resource}: {error}") from error
