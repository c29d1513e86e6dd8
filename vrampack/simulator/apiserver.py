"""The embedded API server: a real HTTP server on loopback for `vrampack/kube/` and kubectl, and an object to control in tests.

    async with ApiServer() as api:
        api.create({"kind": "Node", "metadata": {"name": "gpu-0"}, "status": {...}})
        ...  # point a client, or kubectl --server, at api.url

Pods, nodes, events, StatefulSets and Deployments: `endpoints.py` lists every call, `tests/contract` says what each
answers, here and on the real API server. It has no login, and namespaces need not be created. Unsupported requests are refused,
never ignored. It starts no controllers: `workload_controller.py` and `kubelet.py` run on its `store` when started.
"""

from __future__ import annotations

import copy
import uuid
from collections.abc import Callable
from datetime import UTC, datetime
from types import TracebackType
from typing import Self

from aiohttp import web

from vrampack.simulator.object_store import LOG_LENGTH, Clock, ObjectStore
from vrampack.simulator.patches import apply_merge_patch
from vrampack.simulator.resource_kinds import EVENT, KINDS_BY_PLURAL, NODE, POD, Object, ResourceKind
from vrampack.simulator.routes import build_application
from vrampack.simulator.watch_streams import BOOKMARK_SECONDS, WatchStreams

LOOPBACK = "127.0.0.1"


class ApiServer:
    """One API server and its state. With the same clock and source of uids, the same calls create the same objects.

    Entered again after it was left, it is the same cluster at the same address, like a restarted API server.
    """

    def __init__(
        self,
        *,
        port: int = 0,
        now: Clock = lambda: datetime.now(UTC),
        new_uid: Callable[[], str] = lambda: str(uuid.uuid4()),
        bookmark_seconds: float = BOOKMARK_SECONDS,
        log_length: int = LOG_LENGTH,
    ) -> None:
        self._port = port
        self._store = ObjectStore(now=now, new_uid=new_uid, log_length=log_length)
        self._watches = WatchStreams(self._store, bookmark_seconds=bookmark_seconds)

    async def __aenter__(self) -> Self:
        # A client that goes away ends its watch at once, not at the next change.
        self._runner = web.AppRunner(
            build_application(self._store, self._watches), handler_cancellation=True, access_log=None
        )
        await self._runner.setup()
        site = web.TCPSite(self._runner, LOOPBACK, self._port)
        await site.start()
        self._port = self._runner.addresses[0][1]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._watches.abort_all()
        await self._runner.cleanup()

    @property
    def url(self) -> str:
        return f"http://{LOOPBACK}:{self._port}"

    @property
    def store(self) -> ObjectStore:
        """For controllers in this process: `vrampack.simulator.workload_controller`, `vrampack.simulator.kubelet`."""
        return self._store

    @property
    def resource_version(self) -> int:
        """The resourceVersion of the newest change."""
        return self._store.version

    def create(self, body: Object) -> Object:
        """Create an object as POST does; the namespace is `default` if the metadata names none."""
        kind = _find_kind(body)
        return self._copy_object(kind, self._store.create(kind, _read_namespace(body), copy.deepcopy(body)))

    def restore(self, body: Object) -> Object:
        """Store an object unchanged, with uid, nodeName and status: a recorded one, or one from before a restart."""
        kind = _find_kind(body)
        return self._copy_object(kind, self._store.restore(kind, _read_namespace(body), copy.deepcopy(body)))

    def get(self, plural: str, name: str, *, namespace: str = "default") -> Object:
        return self._copy_object(KINDS_BY_PLURAL[plural], self._store.get(KINDS_BY_PLURAL[plural], namespace, name))

    def patch(
        self, plural: str, name: str, patch: Object, *, namespace: str = "default", is_status: bool = False
    ) -> Object:
        """Apply a merge patch to the object, or to its status."""
        kind, change = KINDS_BY_PLURAL[plural], copy.deepcopy(patch)
        new = self._store.patch(kind, namespace, name, change, apply_patch=apply_merge_patch, is_status=is_status)
        return self._copy_object(kind, new)

    def delete(self, plural: str, name: str, *, namespace: str = "default", grace_seconds: int | None = None) -> None:
        """Delete an object as DELETE does: a bound pod lingers unless `grace_seconds` is 0."""
        self._store.delete(KINDS_BY_PLURAL[plural], namespace, name, {"gracePeriodSeconds": grace_seconds})

    def list_pods(self) -> list[Object]:
        return self._list_objects(POD)

    def list_nodes(self) -> list[Object]:
        return self._list_objects(NODE)

    def list_events(self) -> list[Object]:
        return self._list_objects(EVENT)

    def compact(self) -> None:
        """Forget all versions but the newest: older watches and pages get 410."""
        self._store.compact()

    def cut_watches(self) -> None:
        """Cut the connection of every open watch."""
        self._watches.abort_all()

    def freeze_watches(self) -> None:
        """Let every watch, open or new, stall with its connection up until `thaw_watches`."""
        self._watches.freeze_all()

    def thaw_watches(self) -> None:
        self._watches.thaw_all()

    def send_bookmarks(self) -> None:
        """Send a bookmark now to every watch that asked for them."""
        self._watches.send_bookmarks()

    def _list_objects(self, kind: ResourceKind) -> list[Object]:
        return [self._copy_object(kind, item) for item in self._store.read_page(kind, None).items]

    def _copy_object(self, kind: ResourceKind, item: Object) -> Object:
        """A copy, because all readers share the store's objects, which must not change."""
        return kind.add_type_meta(copy.deepcopy(item))


def _find_kind(body: Object) -> ResourceKind:
    for kind in KINDS_BY_PLURAL.values():
        if kind.name == body.get("kind"):
            return kind
    raise ValueError(
        f"kind {body.get('kind')!r} is not one of {', '.join(kind.name for kind in KINDS_BY_PLURAL.values())}"
    )


def _read_namespace(body: Object) -> str:
    return str((body.get("metadata") or {}).get("namespace") or "default")
