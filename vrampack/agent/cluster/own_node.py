"""The agent's own Node: what it says about our cards, what other plugins offer there, and what the agent writes into it.

The agent writes it only when something differs, in one patch, and not again until the watch has shown that write:
every change to a node wakes every pending pod of the cluster.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence

import msgspec

from vrampack.backoff import Backoff
from vrampack.kube.client import Api
from vrampack.kube.errors import NoAnswerError, RefusedError
from vrampack.kube.objects import LocalNodeObject, NodeCondition, NodeSystemInfo
from vrampack.kube.reflector import ObjectReference
from vrampack.kube.retry_backoff import extend_pause

log = logging.getLogger(__name__)

WRITE_TIMEOUT_SECONDS = 10.0
ECHO_TIMEOUT_SECONDS = 10.0
"""How long the watch may take to show a write before the Node is compared again."""
BACKOFF = Backoff(first_seconds=1.0, longest_seconds=30.0)
"""After failed writes."""
MetadataEntries = Mapping[tuple[str, str], str | None]
"""Values by field of `metadata` (`annotations` or `labels`) and key; None: the key must be absent."""


class OwnNode:
    """A reflector's sink for one Node, and its writer."""

    def __init__(
        self,
        api: Api,
        name: str,
        *,
        on_write: Callable[[], None],
        on_resources: Callable[[Mapping[str, str], Mapping[str, str]], None],
    ) -> None:
        """`on_resources` is called at each change with the node's capacity and allocatable, by resource."""
        self._api = api
        self._name = name
        self._on_write = on_write
        self._on_resources = on_resources
        self._current: dict[str, Mapping[str, str]] | None = None
        self._desired: dict[tuple[str, str], str | None] = {}
        self._sent: dict[tuple[str, str], str | None] = {}
        self._failures = 0
        self.conditions: Mapping[str, NodeCondition] = {}
        """The conditions by type, as the watch last showed them."""
        self.system = NodeSystemInfo()
        """What kubelet reports about itself and the container runtime."""
        self.name = name
        self.uid = ""
        """The uid of the Node object; empty while there is none."""
        self._seen = asyncio.Event()
        self._wake = asyncio.Event()

    async def wait_for_sync(self) -> None:
        """Wait until the API server has shown the node: before that, an absent key means only that nothing is known."""
        await self._seen.wait()

    def set_desired(self, entries: MetadataEntries) -> None:
        """Set what the node ought to have under these keys from now on."""
        self._desired.update(entries)
        self._wake.set()

    def get_current(self, field: str, key: str) -> str | None:
        """The current value, as far as the watch has shown it."""
        return (self._current or {}).get(field, {}).get(key)

    async def run(self) -> None:
        """Write what differs, until cancelled."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            differing = self._list_differences()
            if not differing:
                self._sent = {}  # the watch has shown all of it, perhaps before the answer to the write came
                continue
            if differing.items() <= self._sent.items():
                await self._wait_for_echo()
            else:
                await self._write(differing)

    async def _wait_for_echo(self) -> None:
        """Wait until the watch shows the last write; what it shows before is older."""
        try:
            async with asyncio.timeout(ECHO_TIMEOUT_SECONDS):
                while self._list_differences().items() & self._sent.items():
                    await self._wake.wait()
                    self._wake.clear()
        except TimeoutError:
            log.warning("node patch not observed node=%s", self._name)
        self._sent = {}
        self._wake.set()

    async def _write(self, differing: dict[tuple[str, str], str | None]) -> None:
        metadata: dict[str, dict[str, str | None]] = {}
        for (field, key), value in differing.items():
            metadata.setdefault(field, {})[key] = value
        try:
            await self._api.patch_node(self._name, {"metadata": metadata}, timeout_seconds=WRITE_TIMEOUT_SECONDS)
        except (RefusedError, NoAnswerError) as error:
            log.warning("node not patched node=%s keys=%s error=%s", self._name, _format_keys(differing), error)
            self._failures += 1
            await asyncio.sleep(extend_pause(BACKOFF.draw_seconds(self._failures), error))
            self._wake.set()
            return
        self._failures = 0
        self._on_write()
        self._sent = differing
        log.info("node patched node=%s keys=%s", self._name, _format_keys(differing))
        self._wake.set()

    def _list_differences(self) -> dict[tuple[str, str], str | None]:
        if self._current is None:
            return {}
        return {
            (field, key): value
            for (field, key), value in self._desired.items()
            if self._current.get(field, {}).get(key) != value
        }

    def on_list_started(self, reason: str) -> None:
        log.debug("node relisted reason=%s", reason)

    def on_page(self, objects: Sequence[LocalNodeObject]) -> None:
        for obj in objects:
            self.on_changed(obj)

    def on_list_finished(self) -> None:
        """Ignored: the list has one object."""

    def on_changed(self, obj: LocalNodeObject) -> None:
        self._current = {"annotations": obj.metadata.annotations or {}, "labels": obj.metadata.labels or {}}
        self.conditions = {each.type: each for each in obj.status.conditions or ()}
        self.system = obj.status.node_info
        self.uid = obj.metadata.uid
        self._seen.set()
        self._wake.set()
        self._on_resources(_quantity_texts(obj.status.capacity), _quantity_texts(obj.status.allocatable))

    def on_deleted(self, obj: LocalNodeObject) -> None:
        """A node that rejoins has a new object, without our entries."""
        log.warning("node deleted node=%s", obj.metadata.name)
        self._current = None
        self.uid = ""

    def on_contact(self) -> None:
        """Ignored: nothing depends on how recent the Node is."""

    def on_malformed(self, reference: ObjectReference, text: str) -> None:
        log.warning("node not readable node=%s error=%s", reference, text)


def _quantity_texts(quantities: Mapping[str, msgspec.Raw] | None) -> dict[str, str]:
    return {name: bytes(text).decode(errors="replace").strip('"') for name, text in (quantities or {}).items()}


def _format_keys(entries: Mapping[tuple[str, str], str | None]) -> str:
    return ",".join(key for _, key in sorted(entries))
