"""Notices that the API server denies every call about pods: an account without its rights, or credentials that are no longer known.

Each Binding is then answered 401 or 403, while the watches that were opened before go on, so that the ledger stays fresh.
A webhook may refuse the Bindings of one node with 403, too. So when nothing but such answers has come for a while, the API
server is asked whether this account may make the denied calls; only its "no" makes the service unready, until it says "yes"
or one of these calls is answered otherwise.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from http import HTTPStatus

from extender.metrics import ExtenderMetrics
from vrampack.kube.client import Api
from vrampack.kube.errors import NoAnswerError, RefusedError
from vrampack.kube.reviews import may_i

log = logging.getLogger(__name__)

DENIED_CALLS = 3
DENIED_SECONDS = 30.0
REVIEW_INTERVAL_SECONDS = 5.0
REVIEW_TIMEOUT_SECONDS = 5.0
WATCHED_CALLS = frozenset({("create", "pods/binding"), ("get", "pods"), ("patch", "pods/status")})
"""Verb and resource of the calls without which no pod is bound."""
DENIALS = (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN)
_SILENT_CODES = (0, HTTPStatus.TOO_MANY_REQUESTS)
"""They say nothing about rights, nor do 5xx and answers of other servers."""


class DeniedCalls:
    """Is told of every call, and asks for reviews in `run`."""

    def __init__(self, api: Api, metrics: ExtenderMetrics, clock: Callable[[], float]) -> None:
        self._api = api
        self._is_denied = metrics.api_denied
        self._clock = clock
        self._calls: dict[tuple[str, str], int] = {}
        """How often each call was denied since the last one that was not."""
        self._since = 0.0
        self._denial = ""
        self._is_denied.set(0)
        api.add_observer(self.observe_call)

    def observe_call(self, *, verb: str, resource: str, code: int, seconds: float) -> None:  # noqa: ARG002 - the observer's shape
        """A finished call; a `vrampack.kube.api_caller.CallObserver`."""
        if (verb, resource) not in WATCHED_CALLS:
            return
        if code in DENIALS:
            if not self._calls:
                self._since = self._clock()
            self._calls[verb, resource] = self._calls.get((verb, resource), 0) + 1
        elif code not in _SILENT_CODES and 0 < code < HTTPStatus.INTERNAL_SERVER_ERROR and self._calls:
            self._forget()

    def find_unready_reason(self) -> str:
        """Why no pod can be bound; empty when the API server takes our calls, as far as is known."""
        return self._denial

    async def run(self) -> None:
        """Ask while calls are being denied, until cancelled."""
        while True:
            await asyncio.sleep(REVIEW_INTERVAL_SECONDS)
            await self.review_rights()

    async def review_rights(self) -> None:
        """Ask the API server about the denied calls, if there were enough of them for long enough."""
        if sum(self._calls.values()) < DENIED_CALLS or self._clock() - self._since < DENIED_SECONDS:
            return
        calls = dict(self._calls)
        try:
            denial = await self._find_denial()
        except NoAnswerError as error:
            log.warning("rights not reviewed error=%s", error)
            return
        if not denial:
            self._forget()
        elif calls.keys() <= self._calls.keys() and denial != self._denial:  # no call was answered meanwhile
            log.error("API server denies every call about pods problem=%s", denial)
            self._denial = denial
            self._is_denied.set(1)

    async def _find_denial(self) -> str:
        for verb, resource in sorted(self._calls):
            try:
                is_allowed = await may_i(self._api, verb, resource, timeout_seconds=REVIEW_TIMEOUT_SECONDS)
            except RefusedError as error:
                return f"the API server denies every call of this account: {error}"
            if not is_allowed:
                return f"the API server does not let this account {verb} {resource}: see its ClusterRoleBinding"
        return ""

    def _forget(self) -> None:
        self._calls.clear()
        if self._denial:
            log.info("API server takes calls about pods again")
        self._denial = ""
        self._is_denied.set(0)
