"""Reads the cluster: at the start, when the reader asks, and in the background of a page that shows old figures.

It uses lists, not watches: a page that is opened twice an hour does not justify a watch of every pod.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Mapping, Sequence
from http import HTTPStatus

from extender.settings import ExtenderConfiguration
from vrampack.cli.explain.cluster import read_cluster
from vrampack.cli.ui.cluster_reading import ClusterReading, build_reading
from vrampack.cli.ui.node_totals import NodeTotalsError, read_node_totals
from vrampack.cli.ui.pod_scope import PodScope, find_pod_scope
from vrampack.kube.client import Api
from vrampack.kube.errors import NoAnswerError, RefusedError

log = logging.getLogger(__name__)

OLD_SECONDS = 60.0
"""The age at which a page triggers another reading. Guessed: a list of all pods is work for the API server."""


class ClusterReader:
    """Keeps the last reading."""

    def __init__(
        self,
        api: Api,
        settings: ExtenderConfiguration,
        namespaces: Sequence[str] = (),
        metrics_url: str = "",
        *,
        own_namespace: str = "",
    ) -> None:
        self.api = api
        self.settings = settings
        self._namespaces = namespaces
        self._metrics_url = metrics_url
        self._own_namespace = own_namespace
        self._reading: ClusterReading | None = None
        self._task: asyncio.Task[ClusterReading] | None = None
        self._read_at = 0.0

    async def get_reading(self) -> ClusterReading:
        """The last reading, at once; begins the next one if it is old. Raises as `read_again` does if there is none yet."""
        if self._reading is None:
            return await self.read_again()
        if time.monotonic() - self._read_at > OLD_SECONDS:
            self._begin_reading()
        return self._reading

    async def read_again(self) -> ClusterReading:
        """List everything; concurrent callers share one round. Raises `RefusedError` or `NoAnswerError`."""
        return await asyncio.shield(self._begin_reading())

    async def close(self) -> None:
        """Stop reading, and close the connections."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        await self.api.close()

    def _begin_reading(self) -> asyncio.Task[ClusterReading]:
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._read_cluster())
            self._task.add_done_callback(_log_failure)
        return self._task

    async def _read_cluster(self) -> ClusterReading:
        scope = await find_pod_scope(self.api, self._namespaces, self._own_namespace)
        may_list_nodes = True
        try:
            cluster = await read_cluster(self.api, self.settings, scope.namespaces)
        except RefusedError as error:
            if error.status != HTTPStatus.FORBIDDEN:
                raise
            may_list_nodes = False
            cluster = await read_cluster(self.api, self.settings, scope.namespaces, with_nodes=False)
        held_bytes, notes = await self._read_totals(scope)
        notes = (*cluster.unread_objects, *notes)
        self._reading = build_reading(cluster, scope, held_bytes, notes, may_list_nodes=may_list_nodes)
        self._read_at = time.monotonic()
        return self._reading

    async def _read_totals(self, scope: PodScope) -> tuple[Mapping[str, int], tuple[str, ...]]:
        if scope.is_complete or not self._metrics_url:
            return {}, ()
        try:
            return await read_node_totals(self._metrics_url), ()
        except NodeTotalsError as error:
            return {}, (f"--metrics: {error}",)


def _log_failure(task: asyncio.Task[ClusterReading]) -> None:
    """Log a failure: a background round has no caller, and the page keeps showing how old its figures are."""
    if task.cancelled():
        return
    error = task.exception()
    if isinstance(error, (RefusedError, NoAnswerError)):
        log.warning("cluster not read error=%s", error)
    elif error is not None:
        log.error("cluster not read", exc_info=error)
