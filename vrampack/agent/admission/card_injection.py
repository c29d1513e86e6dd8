"""Gives an admitted container its cards: writes the specs of its CDI devices and waits until the runtime has read them.

Everything that the container needs is in one spec: NVIDIA's edits for the cards, the limits, the variables that
programs written for gpushare read, the files of the limit back end, and the hook. The edits of a spec override what the pod
or its image says, so the pod needs nothing from admission.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from vrampack.agent.admission.errors import RefusedStartError
from vrampack.agent.cdi.card_edits import CardEdits, has_limit_hook
from vrampack.agent.cdi.device_names import CARD_KIND, parse_qualified_name
from vrampack.agent.cdi.edits_source import EditsSource
from vrampack.agent.cdi.errors import CdiError
from vrampack.agent.cdi.spec_document import (
    CdiDevice,
    CdiEdits,
    CdiHook,
    CdiMount,
    CdiSpec,
    choose_version,
    merge_edits,
)
from vrampack.agent.cdi.spec_publisher import SpecOfContainer, SpecPublisher
from vrampack.agent.cluster.local_pod import LocalPod
from vrampack.agent.kubelet.podresources import CheckpointAllocation
from vrampack.agent.nvml.driver import Gpu
from vrampack.cards import well_known
from vrampack.cards.env_injection import CONTAINER_UNITS_VARIABLE, VISIBLE_DEVICES_VARIABLE
from vrampack.cards.grants import Grant, read_grant
from vrampack.cards.records import RecordError

DRIVER_CAPABILITIES_VARIABLE = "NVIDIA_DRIVER_CAPABILITIES"
"""With `graphics`, `display` or `all`, NVIDIA's runtime adds nodes of `/dev/dri`."""
MOUNT_OPTIONS = ("ro", "nosuid", "nodev", "rbind", "rprivate")


class CardInjection:
    """What `PreStartContainer` does for containers that get their card by CDI."""

    def __init__(  # noqa: PLR0913 - what a spec is made of, each named
        self,
        publisher: SpecPublisher,
        edits: EditsSource,
        *,
        get_gpus: Callable[[], Mapping[str, Gpu]],
        list_mounts: Callable[[], Mapping[str, str]],
        get_hook: Callable[[], Path | None],
        needs_limit_hook: Callable[[], bool],
        driver_capabilities: Sequence[str],
    ) -> None:
        """`get_hook` returns the path of our createRuntime hook on the node, None when no limit needs it.

        `needs_limit_hook`: whether only NVIDIA's own hook puts limits in force.
        """
        self._publisher = publisher
        self._edits = edits
        self._get_gpus = get_gpus
        self._list_mounts = list_mounts
        self._get_hook = get_hook
        self._needs_limit_hook = needs_limit_hook
        self._driver_capabilities = ",".join(driver_capabilities)

    async def inject_cards(self, pod: LocalPod, entries: Iterable[CheckpointAllocation]) -> None:
        """Write the specs of these containers of the pod. Raises `RefusedStartError`.

        An init container and a main one may have the same ids, and kubelet does not say which of them starts: both get
        their own spec.
        """
        try:
            specs = [
                SpecOfContainer(
                    name,
                    await self._build_spec(pod, entry.container, name),
                    pod.pod.uid,
                    entry.container,
                    frozenset(read_grant(pod.annotations, entry.container).units),
                )
                for entry in entries
                for name in list_device_names(entry)
            ]
            await self._publisher.publish_specs(specs)
        except RecordError as error:
            raise RefusedStartError("record", f'annotation "{error}"; recreate the pod') from error
        except CdiError as error:
            raise RefusedStartError("cdi", str(error)) from error

    async def _build_spec(self, pod: LocalPod, container: str, name: str) -> CdiSpec:
        grant = read_grant(pod.annotations, container)
        cards = [await self._find_edits(uuid) for uuid in grant.units]
        edits = merge_edits([*(card.edits for card in cards), self._build_own_edits(pod, grant)])
        version = choose_version(card.version for card in cards)
        return CdiSpec(version, CARD_KIND, (CdiDevice(name, edits),))

    async def _find_edits(self, uuid: str) -> CardEdits:
        gpu = self._get_gpus().get(uuid)
        if gpu is None:
            raise RefusedStartError("unknown_card", f"card {uuid} is no longer a card of this agent; recreate the pod")
        found = await self._edits.find_edits(gpu)
        if self._get_gpus().get(uuid) != gpu:  # nvidia-ctk may take longer than the driver needs for another list
            raise RefusedStartError("driver", f"card {uuid} changed while its spec was made; it is tried again")
        if self._needs_limit_hook() and not has_limit_hook(found.edits):
            raise CdiError(f"NVIDIA's spec of card {uuid} has no hook for limits any more; restart the agent")
        return found

    def _build_own_edits(self, pod: LocalPod, grant: Grant) -> CdiEdits:
        hook = self._get_hook()
        return CdiEdits(
            env=(
                f"{DRIVER_CAPABILITIES_VARIABLE}={self._driver_capabilities}",
                *(f"{name}={value}" for name, value in _build_variables(pod, grant).items()),
            ),
            mounts=tuple(CdiMount(host, inside, MOUNT_OPTIONS) for inside, host in self._list_mounts().items()),
            hooks=(CdiHook("createRuntime", os.fspath(hook), (hook.name,)),) if hook is not None else (),
        )


def list_device_names(entry: CheckpointAllocation) -> list[str]:
    """Our own CDI devices in `Allocate`'s answer for the container; none if it got its devices in another mode."""
    return [name for each in entry.cdi_devices if (name := parse_qualified_name(each)) is not None]


def _build_variables(pod: LocalPod, grant: Grant) -> dict[str, str]:
    """The variables that admission would wire up; they also keep an NVIDIA runtime from adding anything by itself."""
    limits = list(grant.limits_mib.values())
    variables = {
        VISIBLE_DEVICES_VARIABLE: "void",
        CONTAINER_UNITS_VARIABLE: str(sum(grant.units.values())),
        **({"NVIDIA_GPU_MEMORY_LIMIT": str(min(limits))} if limits else {}),
    }
    names = (well_known.GPUSHARE_POD, well_known.GPUSHARE_DEV, well_known.GPUSHARE_IDX)
    return variables | {name: pod.annotations.get(name, "") for name in names}
