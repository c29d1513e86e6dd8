"""The baseline with which the ledger compares a list of all pods."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RelistBaseline:
    """What the ledger knew when a list of all pods began, by uid."""

    pods: frozenset[str]
    placed_pods: frozenset[str]
