"""Which of two versions of one object is the later one."""

from __future__ import annotations


def is_later_version(version: str, than: str) -> bool:
    """Whether `version` was written after `than`. False if either is empty or not a decimal number.

    Since 1.35 Kubernetes documents that resourceVersions of one resource compare as decimal integers of any size, and
    every API server on etcd has always written them so.
    """
    if not (version.isdecimal() and than.isdecimal()):
        return False
    return (len(version), version) > (len(than), than)
