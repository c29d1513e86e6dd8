"""The pods of this node, as the API server shows them: a watch keeps them, and single pods are fetched if it may lag."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence

import msgspec

from vrampack.agent.cluster.local_pod import LocalPod, to_local_pod
from vrampack.cards import well_known
from vrampack.kube.client import Api
from vrampack.kube.decoding import UNDECODABLE
from vrampack.kube.errors import NoAnswerError
from vrampack.kube.objects import LocalPodObject
from vrampack.kube.reflector import ObjectReference, Reflector

log = logging.getLogger(__name__)

GET_TIMEOUT_SECONDS = 5.0
"""Part of the 30 s that kubelet waits for an answer before a container starts."""
MAX_DELETED_UIDS = 500
"""As many pods as a node has; at most a few pods can end while the API server answers."""
RELIST_SPREAD_SECONDS = 30.0
"""The agents of a cluster may all lose their watches at once, and for each list an API server may have to read every pod: 300
agents make ten lists a second. No start waits for it, since a pod that starts is fetched by its name."""


class PodCache:
    """A reflector's sink. Pods that do not ask for our resource are not kept."""

    def __init__(self, api: Api, *, resource: str, on_pod_ended: Callable[[LocalPod], None]) -> None:
        self._api = api
        self._resource = resource
        self._on_pod_ended = on_pod_ended
        """Called with each pod that is finished or gone."""
        self._pods: dict[str, LocalPod] = {}
        self._deleted_uids: deque[str] = deque(maxlen=MAX_DELETED_UIDS)
        """Uids of pods that the watch showed as gone: it will not say so again, so a later answer with one is stale."""
        self._listed_uids: set[str] | None = None
        self._synced = asyncio.Event()
        self._changed = asyncio.Event()

    def build_reflector(self, node: str) -> Reflector[LocalPodObject]:
        """The reflector that feeds it with the pods of this node."""
        return Reflector(
            self._api,
            "pods",
            LocalPodObject,
            self,
            field_selector=f"spec.nodeName={node}",
            relist_spread_seconds=RELIST_SPREAD_SECONDS,
        )

    async def wait_for_sync(self) -> None:
        """Wait for the first complete list."""
        await self._synced.wait()

    async def wait_for_change(self) -> None:
        """Wait until a pod in the cache has come, changed or gone since the last call."""
        await self._changed.wait()
        self._changed.clear()

    @property
    def has_synced(self) -> bool:
        return self._synced.is_set()

    def list_pods(self) -> list[LocalPod]:
        """The pods that hold cards, sorted by name."""
        return sorted((pod for pod in self._pods.values() if pod.is_active), key=lambda each: str(each.pod))

    def find_pod(self, uid: str) -> LocalPod | None:
        """The pod with this uid, if the watch has shown it."""
        return self._pods.get(uid)

    def find_named_pod(self, namespace: str, name: str) -> LocalPod | None:
        """The pod of this name that holds cards, if the watch has shown it."""
        return next(
            (each for each in self.list_pods() if (each.pod.namespace, each.pod.name) == (namespace, name)), None
        )

    def has_ended(self, uid: str) -> bool:
        """Whether the watch has shown the pod as finished or gone. It will not say so again."""
        pod = self._pods.get(uid)
        return uid in self._deleted_uids if pod is None else not pod.is_active

    async def fetch_pod(self, namespace: str, name: str) -> LocalPod | None:
        """The pod of this name as the API server has it now, None when there is none.

        Raises `NoAnswerError` or `RefusedError`.
        """
        body = await self._api.get_pod_bytes(namespace, name, timeout_seconds=GET_TIMEOUT_SECONDS)
        if body is None:
            return None
        try:
            obj = msgspec.json.decode(body, type=LocalPodObject)
        except UNDECODABLE as error:
            raise NoAnswerError(f"get pod {namespace}/{name}: {error}") from error
        return None if obj.metadata.uid in self._deleted_uids else to_local_pod(obj, self._resource)

    def on_list_started(self, reason: str) -> None:
        log.debug("pods relisted reason=%s", reason)
        self._listed_uids = set()

    def on_page(self, objects: Sequence[LocalPodObject]) -> None:
        for obj in objects:
            if self._listed_uids is not None:
                self._listed_uids.add(obj.metadata.uid)
            self.on_changed(obj)

    def on_list_finished(self) -> None:
        for uid in set(self._pods) - (self._listed_uids or set()):
            self._deleted_uids.append(uid)
            self._remove_pod(uid)
        self._listed_uids = None
        self._synced.set()

    def on_changed(self, obj: LocalPodObject) -> None:
        pod = to_local_pod(obj, self._resource)
        if not pod.pod.can_hold_memory and well_known.ALLOCATION not in pod.annotations:
            return
        self._pods[pod.pod.uid] = pod
        self._changed.set()
        if not pod.is_active:
            self._on_pod_ended(pod)

    def on_deleted(self, obj: LocalPodObject) -> None:
        self._deleted_uids.append(obj.metadata.uid)
        self._remove_pod(obj.metadata.uid)

    def on_contact(self) -> None:
        """Ignored: nothing depends on how recent the cache is, as a pod that starts is fetched again."""

    def on_malformed(self, reference: ObjectReference, text: str) -> None:
        log.warning("pod not readable pod=%s error=%s", reference, text)

    def _remove_pod(self, uid: str) -> None:
        pod = self._pods.pop(uid, None)
        if pod is not None:
            self._changed.set()
            self._on_pod_ended(pod)
