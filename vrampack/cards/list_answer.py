"""Whether an answer to a list request is the API server's word. `vrampack.kube.answers` decides so about every other answer."""

from __future__ import annotations


def is_list(kind: str, resource_version: str) -> bool:
    """Whether an answer with these fields is a list: without a version no watch can follow it."""
    return kind.endswith("List") and bool(resource_version)
