"""The highest measured use of each container, for back ends that do not count every allocation."""

from __future__ import annotations

from collections.abc import Collection, Mapping

ContainerKey = tuple[str, str, str]
"""Pod uid, container name, card."""


class PeakUsage:
    """Peaks of containers whose pods are on the node. A peak between two measurements goes unseen."""

    def __init__(self) -> None:
        self._peaks: dict[ContainerKey, int] = {}

    def record_usage(self, used_bytes: Mapping[ContainerKey, int], pod_uids: Collection[str]) -> None:
        """Add one measurement, and drop the peaks of pods that are no longer on the node."""
        kept = {key: peak for key, peak in self._peaks.items() if key[0] in pod_uids}
        for key, used in used_bytes.items():
            if key[0] in pod_uids:
                kept[key] = max(used, kept.get(key, 0))
        self._peaks = kept

    def get_peak(self, key: ContainerKey, *, used_bytes: int) -> int:
        """The peak, which is never below what is used now."""
        return max(used_bytes, self._peaks.get(key, 0))
