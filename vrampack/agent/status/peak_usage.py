"""The most that a container was measured to use, where nothing counts every allocation."""

from __future__ import annotations

from collections.abc import Collection, Mapping

ContainerKey = tuple[str, str, str]
"""Pod uid, container name, card."""


class PeakUsage:
    """Of containers whose pods are on the node. A peak between two measurements is not seen."""

    def __init__(self) -> None:
        self._peaks: dict[ContainerKey, int] = {}

    def record_usage(self, used_bytes: Mapping[ContainerKey, int], pod_uids: Collection[str]) -> None:
        """One measurement, and the pods that are on the node."""
        kept = {key: peak for key, peak in self._peaks.items() if key[0] in pod_uids}
        for key, used in used_bytes.items():
            if key[0] in pod_uids:
                kept[key] = max(used, kept.get(key, 0))
        self._peaks = kept

    def get_peak(self, key: ContainerKey, *, used_bytes: int) -> int:
        """Never below what is used now."""
        return max(used_bytes, self._peaks.get(key, 0))
