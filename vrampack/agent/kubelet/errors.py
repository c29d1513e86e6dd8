"""What reading kubelet raises."""

from __future__ import annotations


class KubeletError(Exception):
    """kubelet did not answer, or said no."""
