"""Checks, at the start and every five minutes, whether a DeviceClass claims our resource.

Since Kubernetes 1.36 a DeviceClass may name an extended resource. On every node that does not advertise the resource
the scheduler then wants devices of that class instead: it no longer counts the resource there, and a pod for which it
finds no device waits without the extender being asked. The check logs and counts such classes and changes nothing.
"""

from __future__ import annotations

import asyncio
import logging
import random
from functools import partial
from http import HTTPStatus
from typing import Literal

import msgspec

from extender.metrics import ExtenderMetrics
from vrampack.backoff import Backoff
from vrampack.kube.client import Api
from vrampack.kube.dra_objects import DeviceClassObject
from vrampack.kube.errors import NoAnswerError, RefusedError
from vrampack.kube.list_page import ListPage, decode_page
from vrampack.kube.list_pager import ListPager

log = logging.getLogger(__name__)

CHECK_INTERVAL_SECONDS = 300.0
RETRY_SECONDS = 10.0
"""The pause after the first failure; further failures double it, up to the usual interval."""
PAGE_TIMEOUT_SECONDS = 10.0
CHECK_TIMEOUT_SECONDS = 60.0
"""For all pages together: a list that does not end is abandoned."""
CONFLICT_PROBLEM = (
    "on nodes that do not advertise it the scheduler looks for devices of that class and does not call the extender, so pods "
    "wait; delete the class or change its spec.extendedResourceName"
)
FORBIDDEN_ERROR = "the account lacks the right to list deviceclasses of resource.k8s.io; apply the roles again"
_PAGE = msgspec.json.Decoder(ListPage[DeviceClassObject])


class DeviceClassCheck:
    """`run` until cancelled."""

    def __init__(
        self, api: Api, metrics: ExtenderMetrics, *, resource: str, every_seconds: float = CHECK_INTERVAL_SECONDS
    ) -> None:
        self._api = api
        self._metrics = metrics
        self._resource = resource
        self._every_seconds = every_seconds
        self._backoff = Backoff(RETRY_SECONDS, every_seconds)
        self._known: frozenset[str] = frozenset()
        self._reported: Literal["", "forbidden", "failed"] = ""
        self._failures = 0
        self._retry_after_seconds = 0.0
        """What the API server asked for when the last check failed."""

    async def run(self) -> None:
        while True:
            await self.check_device_classes()
            pause = self._get_pause_seconds() * random.uniform(0.8, 1)  # noqa: S311 - spreads load, hides nothing
            await asyncio.sleep(max(pause, self._retry_after_seconds))

    async def check_device_classes(self) -> None:
        """Check once. Never raises: a failure is logged once, and the next check tries again."""
        self._retry_after_seconds = 0.0
        try:
            async with asyncio.timeout(CHECK_TIMEOUT_SECONDS):
                self._report_conflicts(await self._list_conflicts())
        except RefusedError as error:
            self._report_refusal(error)
        except (NoAnswerError, TimeoutError) as error:
            self._report_failure(error)
        except Exception:
            # The top of this task: a fault in a check must not end the service.
            log.exception("device classes not checked")
            self._failures += 1

    async def _list_conflicts(self) -> frozenset[str]:
        fetch = partial(self._api.list_device_classes, timeout_seconds=PAGE_TIMEOUT_SECONDS)
        decode = partial(decode_page, decoder=_PAGE, resource="deviceclasses")
        pages = ListPager(fetch, decode, "deviceclasses").read_pages()
        return frozenset(
            [
                each.metadata.name
                async for page in pages
                for each in page.items or ()
                if each.spec.extended_resource_name == self._resource
            ]
        )

    def _report_conflicts(self, names: frozenset[str]) -> None:
        self._reported, self._failures = "", 0
        self._metrics.device_class_conflicts.set(len(names))
        for name in sorted(names - self._known):
            log.error("device class conflict class=%s resource=%s problem=%s", name, self._resource, CONFLICT_PROBLEM)
        if self._known - names:
            log.info("device class conflict ended class=%s", ",".join(sorted(self._known - names)))
        self._known = names

    def _report_refusal(self, error: RefusedError) -> None:
        if error.status == HTTPStatus.NOT_FOUND:  # an API server that has no such kind
            self._report_conflicts(frozenset())
        elif error.status == HTTPStatus.FORBIDDEN:
            self._failures = 0
            self._metrics.device_class_conflicts.set(-1)
            self._warn_once("forbidden", FORBIDDEN_ERROR)
        else:
            self._report_failure(error)

    def _report_failure(self, error: Exception) -> None:
        """Log it; the conflicts found earlier stay known."""
        self._failures += 1
        if isinstance(error, RefusedError | NoAnswerError):
            self._retry_after_seconds = error.retry_after_seconds
        self._warn_once("failed", str(error) or type(error).__name__)

    def _warn_once(self, cause: Literal["forbidden", "failed"], error: str) -> None:
        """Log the cause once, until it changes or goes away."""
        if cause != self._reported:
            log.warning("device classes not checked error=%s", error)
        self._reported = cause

    def _get_pause_seconds(self) -> float:
        if not self._failures:
            return self._every_seconds
        return self._backoff.compute_seconds(self._failures)
