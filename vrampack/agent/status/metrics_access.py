"""Who may read the page of metrics: accounts that RBAC lets `get` the URL `/metrics`, as with the metrics of Kubernetes' own parts.

The agent remembers each verdict for a while, under the token's hash. It reviews only a few unknown tokens a second: otherwise a
caller that invents tokens would make the agents of all nodes ask the API server about each of them.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from http import HTTPStatus

from vrampack.kube.client import Api
from vrampack.kube.errors import NoAnswerError, RefusedError
from vrampack.kube.reviews import may_token_read_page

log = logging.getLogger(__name__)

ALLOWED_SECONDS = 60.0
"""How long a token still works after it was revoked or lost its right."""
REFUSED_SECONDS = 10.0
"""How long a new right takes to be noticed."""
MAX_VERDICTS = 64
"""Scrapers of a cluster are a handful."""
STRANGERS_PER_SECOND = 5
"""Reviews of tokens that were not allowed before."""
STRANGERS_PER_PEER = 3
"""Of these from one address, so that a caller that invents tokens leaves reviews for a scraper whose token is new."""
REVIEW_SECONDS = 3.0
"""Both questions; a scraper waits for ten."""
_SCHEME = b"bearer "


@dataclass(frozen=True, slots=True)
class AccessVerdict:
    """What became of a token."""

    status: HTTPStatus
    until: float


class MetricsAccess:
    """The verdicts about callers of one page."""

    def __init__(self, api: Api, path: str, *, clock: Callable[[], float]) -> None:
        self._api = api
        self._path = path
        self._clock = clock
        self._verdicts: dict[bytes, AccessVerdict] = {}
        """By hash of the token, the one that was reviewed longest ago first."""
        self._second = 0
        self._strangers: Counter[str] = Counter()
        """Reviews of this second, by address of the caller."""

    async def check_caller(self, authorization: bytes, *, peer: str) -> HTTPStatus:
        """200, or the status that refuses the caller with this `Authorization` header and address."""
        if authorization[: len(_SCHEME)].lower() != _SCHEME:
            return HTTPStatus.UNAUTHORIZED
        token = authorization[len(_SCHEME) :].strip()
        key, now = hashlib.sha256(token).digest(), self._clock()
        known = self._verdicts.get(key)
        if known is not None and now < known.until:
            return known.status
        is_stranger = known is None or known.status is not HTTPStatus.OK
        if is_stranger and not self._take_stranger(now, peer):
            return HTTPStatus.TOO_MANY_REQUESTS
        try:
            async with asyncio.timeout(REVIEW_SECONDS):
                status = await self._review_token(token.decode("latin-1"))
        except (NoAnswerError, RefusedError, TimeoutError) as error:
            log.warning("caller of metrics not reviewed error=%s", str(error) or "no answer in time")
            return HTTPStatus.SERVICE_UNAVAILABLE
        self._remember_verdict(key, status)
        return status

    async def _review_token(self, token: str) -> HTTPStatus:
        is_allowed = await may_token_read_page(self._api, token, self._path, timeout_seconds=REVIEW_SECONDS)
        if is_allowed is None:
            return HTTPStatus.UNAUTHORIZED
        return HTTPStatus.OK if is_allowed else HTTPStatus.FORBIDDEN

    def _take_stranger(self, now: float, peer: str) -> bool:
        if int(now) != self._second:
            self._second, self._strangers = int(now), Counter()
        if self._strangers[peer] >= STRANGERS_PER_PEER or self._strangers.total() >= STRANGERS_PER_SECOND:
            return False
        self._strangers[peer] += 1
        return True

    def _remember_verdict(self, key: bytes, status: HTTPStatus) -> None:
        """In place of an earlier one; for its room a refused token goes first, so that strangers push no scraper out."""
        self._verdicts.pop(key, None)
        if len(self._verdicts) >= MAX_VERDICTS:
            refused = (each for each, verdict in self._verdicts.items() if verdict.status is not HTTPStatus.OK)
            del self._verdicts[next(refused, next(iter(self._verdicts)))]
        seconds = ALLOWED_SECONDS if status is HTTPStatus.OK else REFUSED_SECONDS
        self._verdicts[key] = AccessVerdict(status, self._clock() + seconds)
