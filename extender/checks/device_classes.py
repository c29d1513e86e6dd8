"""Looks, at the start and every five minutes, whether somebody else hands out the resource that is ours.

Since Kubernetes 1.36 a DeviceClass may name an extended resource. On every node that does not advertise the resource
the scheduler then wants devices of that class instead: it no longer counts the resource there, and a pod for which it
finds no device waits without the extender being asked. All that is done here is to say so; what goes wrong meanwhile is
said once and tried again.
"""

from __future__ import annotations

import asyncio
import logging
import random
from http import HTTPStatus

from extender.metrics import ExtenderMetrics
from vrampack.kube.client import Api
from vrampack.kube.errors import NoAnswerError, RefusedError

log = logging.getLogger(__name__)

CHECK_INTERVAL_SECONDS = 300.0
RETRY_SECONDS = 10.0
"""After the first failure; each further one doubles it, up to the usual pause."""
PAGE_SIZE = 500
PAGE_TIMEOUT_SECONDS = 10.0
CHECK_TIMEOUT_SECONDS = 60.0
"""For all pages: a list that does not end is given up."""


class DeviceClassCheck:
    """`run` until cancelled."""

    def __init__(
        self, api: Api, metrics: ExtenderMetrics, *, resource: str, every_seconds: float = CHECK_INTERVAL_SECONDS
    ) -> None:
        self._api = api
        self._metrics = metrics
        self._resource = resource
        self._every_seconds = every_seconds
        self._known: frozenset[str] = frozenset()
        self._problem = ""
        self._failures = 0

    async def run(self) -> None:
        while True:
            await self.check_device_classes()
            await asyncio.sleep(self._get_pause_seconds() * random.uniform(0.8, 1))  # noqa: S311 - spreads load, hides nothing

    async def check_device_classes(self) -> None:
        """Look once. Never raises: what goes wrong is said and counted."""
        try:
            async with asyncio.timeout(CHECK_TIMEOUT_SECONDS):
                self._report_conflicts(await self._list_conflicts())
        except RefusedError as error:
            self._handle_refusal(error)
        except (NoAnswerError, TimeoutError) as error:
            self._note_failure(error)
        except Exception:
            # The top of this task: a fault in a look around must not end the service.
            log.exception("device classes not checked")
            self._failures += 1

    async def _list_conflicts(self) -> frozenset[str]:
        names: set[str] = set()
        token = ""
        while True:
            page = await self._api.list_device_classes(
                limit=PAGE_SIZE, token=token, timeout_seconds=PAGE_TIMEOUT_SECONDS
            )
            names.update(
                each.metadata.name for each in page.items or () if each.spec.extended_resource_name == self._resource
            )
            token = page.metadata.continue_
            if not token:
                return frozenset(names)

    def _report_conflicts(self, names: frozenset[str]) -> None:
        self._problem, self._failures = "", 0
        self._metrics.device_class_conflicts.set(len(names))
        for name in sorted(names - self._known):
            log.error(
                "device class claims our resource class=%s resource=%s: on nodes that do not advertise it the scheduler "
                "wants devices of that class, and pods wait without the extender being asked; delete the class or change "
                "its spec.extendedResourceName",
                name,
                self._resource,
            )
        if self._known - names:
            log.info("device class no longer claims our resource class=%s", ",".join(sorted(self._known - names)))
        self._known = names

    def _handle_refusal(self, error: RefusedError) -> None:
        if error.status == HTTPStatus.NOT_FOUND:  # an API server that has no such kind
            self._report_conflicts(frozenset())
        elif error.status == HTTPStatus.FORBIDDEN:
            self._failures = 0
            self._metrics.device_class_conflicts.set(-1)
            self._report_problem(
                "device classes not checked: the account lacks the right to list deviceclasses of resource.k8s.io; "
                "apply the roles again"
            )
        else:
            self._note_failure(error)

    def _note_failure(self, error: Exception) -> None:
        """What was known stays known."""
        self._failures += 1
        self._report_problem("device classes not checked", error=str(error) or type(error).__name__)

    def _report_problem(self, problem: str, *, error: str = "") -> None:
        """Once, until it is another problem or none."""
        if problem != self._problem:
            log.warning("%s%s", problem, f" error={error}" if error else "")
        self._problem = problem

    def _get_pause_seconds(self) -> float:
        if not self._failures:
            return self._every_seconds
        return min(self._every_seconds, RETRY_SECONDS * 2.0 ** min(self._failures - 1, 10))
