"""The calls that only commands for diagnosis make: reading any path, and checking what an account may do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from vrampack.kube.api_caller import DEFAULT_TIMEOUT_SECONDS, build_selector_query
from vrampack.kube.client import Api
from vrampack.kube.list_page import build_page_query
from vrampack.kube.reviews import review_access


class DiagnosticApi(Api):
    """One API server, for diagnosis by a person."""

    async def read_path(
        self,
        path: str,
        *,
        resource: str,
        query: Mapping[str, str] | None = None,
        timeout_seconds: float,
        max_bytes: int,
    ) -> bytes:
        """At most `max_bytes` of what the path serves: a list of any kind, a log, a page that a pod serves.

        Errors call it `resource`. Raises `RefusedError` or `NoAnswerError`.
        """
        return await self._call(
            "GET", path, resource, verb="get", query=query, seconds=timeout_seconds, max_bytes=max_bytes
        )

    async def read_list_page(  # noqa: PLR0913 - which list, and the pager's three
        self,
        path: str,
        *,
        resource: str,
        limit: int,
        token: str,
        max_bytes: int,
        timeout_seconds: float,
        field_selector: str = "",
    ) -> bytes:
        """One page of the list that the path serves, as `list_page`."""
        return await self.read_path(
            path,
            resource=resource,
            query=build_page_query(limit, token) | build_selector_query(field_selector),
            timeout_seconds=timeout_seconds,
            max_bytes=max_bytes,
        )

    async def review_access(self, user: str, groups: Sequence[str], *, attributes: Mapping[str, str]) -> bool:
        """Whether this user may do what the attributes of a SubjectAccessReview name.

        Raises `RefusedError` or `NoAnswerError`.
        """
        spec = {"user": user, "groups": list(groups), "resourceAttributes": dict(attributes)}
        return await review_access(self, "SubjectAccessReview", spec, timeout_seconds=DEFAULT_TIMEOUT_SECONDS)
