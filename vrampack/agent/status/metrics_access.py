"""Who may read the metrics page: accounts that RBAC allows to `get` the URL `/metrics`, as for Kubernetes' own components.

The agent caches each verdict for a while, under the token's hash. It reviews only a few unknown tokens a second: otherwise a
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
"""How long a token may still work after it was revoked or lost its right."""
REFUSED_SECONDS = 10.0
"""How long a new right may go unnoticed."""
MAX_VERDICTS = 64
"""A cluster has only a handful of scrapers."""
STRANGERS_PER_SECOND = 5
"""The most reviews a second of tokens that were not allowed before."""
STRANGERS_PER_PEER = 3
"""The most of these for one address, so that a caller that invents tokens leaves some for a scraper with a new token."""
REVIEW_SECONDS = 3.0
"""For both API calls together; a scraper waits for ten."""
_SCHEME = b"bearer "


@dataclass(frozen=True, slots=True)
class AccessVerdict:
    """The verdict on one token."""

    status: HTTPStatus
    until: float


class MetricsAccess:
    """The verdicts about callers of one page."""

    def __init__(self, api: Api, path: str, *, clock: Callable[[], float]) -> None:
        self._api = api
        self._path = path
        self._clock = clock
        self._verdicts: dict[bytes, AccessVerdict] = {}
        """By hash of the token, the least recently reviewed first."""
        self._second = 0
        self._strangers: Counter[str] = Counter()
        """Reviews in this second, by address of the caller."""

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
        """Store the verdict. A full cache drops refused tokens first, so that strangers do not push out scrapers."""
        self._verdicts.pop(key, None)
        if len(self._verdicts) >= MAX_VERDICTS:
            refused = (each for each, verdict in self._verdicts.items() if verdict.status is not HTTPStatus.OK)
            del self._verdicts[next(refused, next(iter(self._verdicts)))]
        seconds = ALLOWED_SECONDS if status is HTTPStatus.OK else REFUSED_SECONDS
        self._verdicts[key] = AccessVerdict(status, self._clock() + seconds)
