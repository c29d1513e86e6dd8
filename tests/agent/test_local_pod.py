"""What an agent keeps of a pod."""

from __future__ import annotations

from vrampack.agent.cluster.local_pod import to_local_pod
from vrampack.cards import well_known
from vrampack.kube.objects import LocalPodObject, OwnedObjectMeta


def test_of_annotations_only_those_of_a_record_are_kept() -> None:
    """A user may give each of a thousand finished pods 256 KiB of others."""
    record = {
        well_known.ALLOCATION: "{}",
        well_known.VISIBLE_DEVICES_PREFIX + "main": "GPU-0",
        well_known.LIMIT_MIB_PREFIX + "main": "1024",
        well_known.GPUSHARE_ASSUME_TIME: "1",
    }
    metadata = OwnedObjectMeta(uid="p", annotations=record | {"example.com/notes": "x" * 262_144})
    assert to_local_pod(LocalPodObject(metadata=metadata), well_known.MEMORY_RESOURCE).annotations == record
