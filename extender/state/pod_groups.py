"""How many pods of a group must start together and where, as the PodGroup says: of Kubernetes from 1.36 on, or of the plugin Coscheduling.

    the API server has the kind --> all groups are listed, then watched, in the best version that it has
    it does not, or we may not  --> asked again every five minutes; no group is known, even if some were before

Of a group that is not known, or whose pods may start one by one, no pod is refused for the others.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Sequence
from http import HTTPStatus
from typing import get_args

from extender.metrics import ExtenderMetrics
from vrampack.cards.pod_group import GroupKey, GroupKind
from vrampack.kube.api_request import PodGroupResource
from vrampack.kube.client import Api
from vrampack.kube.errors import NoAnswerError, RefusedError
from vrampack.kube.pod_groups import RESOURCES, PodGroupObject
from vrampack.kube.reflector import ObjectReference, Reflector

log = logging.getLogger(__name__)

PROBE_INTERVAL_SECONDS = 300.0
RETRY_SECONDS = 10.0
"""The pause where the API server gave no answer."""


class PodGroups:
    """The minimum of each group that has one, and the label whose value its nodes must share."""

    def __init__(self) -> None:
        self._minimums: dict[GroupKey, int] = {}
        self._topology_keys: dict[GroupKey, str] = {}
        self._listeners: list[Callable[[GroupKey], None]] = []

    def add_listener(self, on_changed: Callable[[GroupKey], None]) -> None:
        """Call it with each group whose minimum changes from now on."""
        self._listeners.append(on_changed)

    def get_minimum(self, group: GroupKey) -> int | None:
        return self._minimums.get(group)

    def put_minimum(self, group: GroupKey, minimum: int | None) -> None:
        """`minimum`: None if its pods may start one by one, or it is gone."""
        if minimum == self._minimums.get(group):
            return
        if minimum is None:
            del self._minimums[group]
        else:
            self._minimums[group] = minimum
        for on_changed in self._listeners:
            on_changed(group)

    def get_topology_key(self, group: GroupKey) -> str:
        """Empty if its pods may go to any nodes."""
        return self._topology_keys.get(group, "")

    def put_topology_key(self, group: GroupKey, key: str) -> None:
        if key:
            self._topology_keys[group] = key
        else:
            self._topology_keys.pop(group, None)

    def forget_group(self, group: GroupKey) -> None:
        self.put_topology_key(group, "")
        self.put_minimum(group, None)

    def keep_listed(self, kind: GroupKind, listed: set[GroupKey]) -> None:
        """Forget the other groups of this kind."""
        known = self._minimums.keys() | self._topology_keys.keys()
        for group in [each for each in known if each.kind == kind and each not in listed]:
            self.forget_group(group)


class PodGroupSink:
    """A reflector's sink for one kind."""

    def __init__(self, groups: PodGroups, kind: GroupKind, metrics: ExtenderMetrics) -> None:
        self._groups = groups
        self._kind: GroupKind = kind
        self._metrics = metrics
        self._listed: set[GroupKey] = set()

    def on_list_started(self, reason: str) -> None:
        self._metrics.relists.labels(self._kind, reason).inc()
        self._listed = set()

    def on_page(self, objects: Sequence[PodGroupObject]) -> None:
        for obj in objects:
            self._listed.add(self._get_key(obj))
            self.on_changed(obj)

    def on_list_finished(self) -> None:
        self._groups.keep_listed(self._kind, self._listed)

    def on_changed(self, obj: PodGroupObject) -> None:
        self._groups.put_topology_key(self._get_key(obj), obj.topology_key)
        self._groups.put_minimum(self._get_key(obj), obj.minimum)

    def on_deleted(self, obj: PodGroupObject) -> None:
        self._groups.forget_group(self._get_key(obj))

    def on_malformed(self, reference: ObjectReference, text: str) -> None:
        log.warning("pod group not decoded group=%s error=%s", reference, text)
        self._groups.forget_group(GroupKey(self._kind, reference.namespace, reference.name))

    def on_contact(self) -> None:
        """Ignored: the minimum of a group seldom changes, and nothing is refused for its age."""

    def _get_key(self, obj: PodGroupObject) -> GroupKey:
        return GroupKey(self._kind, obj.metadata.namespace, obj.metadata.name)


class PodGroupWatcher:
    """Runs a reflector for each kind of group that the API server has. `run` runs until cancelled."""

    def __init__(self, api: Api, groups: PodGroups, metrics: ExtenderMetrics) -> None:
        self._api = api
        self._groups = groups
        self._metrics = metrics

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            for kind in get_args(GroupKind):
                group.create_task(self._follow_kind(kind))

    async def _follow_kind(self, kind: GroupKind) -> None:
        sink = PodGroupSink(self._groups, kind, self._metrics)
        while True:
            resource = await self._wait_for_kind(kind)
            try:
                await Reflector(self._api, resource, PodGroupObject, sink, is_optional=True).run()
            except RefusedError as error:
                log.warning("pod groups no longer read kind=%s error=%s", kind, error)
            self._groups.keep_listed(kind, set())

    async def _wait_for_kind(self, kind: GroupKind) -> PodGroupResource:
        """Returns the best version that the API server has."""
        is_reported = False
        while True:
            statuses: list[int] = []
            for resource in RESOURCES[kind]:
                statuses.append(await self._probe_resource(resource))
                if statuses[-1] == HTTPStatus.OK:
                    return resource
            if HTTPStatus.FORBIDDEN in statuses and not is_reported:
                is_reported = True
                log.warning(
                    "pod groups not read kind=%s problem=the account lacks list and watch; apply the roles", kind
                )
            seconds = PROBE_INTERVAL_SECONDS if all(statuses) else RETRY_SECONDS
            await asyncio.sleep(seconds * random.uniform(0.8, 1))  # noqa: S311 - spreads load, hides nothing

    async def _probe_resource(self, resource: PodGroupResource) -> int:
        """The status of a list of one group; 0 without an answer."""
        try:
            await self._api.list_page(resource, limit=1)
        except RefusedError as error:
            return error.status
        except NoAnswerError:
            return 0
        return HTTPStatus.OK
