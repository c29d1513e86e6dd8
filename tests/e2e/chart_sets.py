"""The sets of value files that are tried: each shape, and the first one with each part."""

from __future__ import annotations

from collections.abc import Sequence

SHAPE = "second-scheduler"
SETS: dict[str, tuple[Sequence[str], str, str]] = {
    "second-scheduler": ([SHAPE], SHAPE, ""),
    "before-1.36": (["before-1.36"], "before-1.36", ""),
    "kubeadm": (["kubeadm"], "kubeadm", ""),
    "webhook-second-scheduler": (["webhook-second-scheduler"], "webhook/second-scheduler", ""),
    "webhook-kubeadm": (["webhook-kubeadm"], "webhook/kubeadm", ""),
    "exact": ([SHAPE, "exact"], SHAPE, "admission/exact"),
    "optional": ([SHAPE, "optional"], SHAPE, "admission/optional"),
    "legacy-plugin": ([SHAPE, "legacy-plugin"], SHAPE, "admission/legacy-plugin"),
    "runtime-class": ([SHAPE, "runtime-class"], SHAPE, "agent/runtime-class"),
    "gpu-operator": ([SHAPE, "gpu-operator"], SHAPE, "agent/gpu-operator"),
    "gpu-operator-nri": ([SHAPE, "gpu-operator-nri"], SHAPE, "agent/gpu-operator/nri"),
    "account-reads": ([SHAPE, "account-reads"], SHAPE, "agent/account-reads"),
    "kmod": ([SHAPE, "kmod"], SHAPE, "agent/kmod"),
}
"""Value files, and what a kustomization names for the same: under `resources`, and under `components`."""
