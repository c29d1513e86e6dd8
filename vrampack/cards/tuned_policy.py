"""The policy that ranks nodes for a pod, as the configuration has tuned it."""

from __future__ import annotations

from typing import NamedTuple


class TunedPolicy(NamedTuple):
    """A policy with its numbers. Equal values rank alike and share caches; the same policy with other numbers does not."""

    name: str
    """The name of the policy."""
    weights: tuple[tuple[str, float], ...] = ()
    """The weights that differ from the policy's own, sorted by name."""
    card_use_percent: int | None = None
    """Cards that would be fuller than this rank after all others; None: no bound."""

    @property
    def label(self) -> str:
        """The name, with the numbers that differ from the policy's own."""
        bound = () if self.card_use_percent is None else (("card_use_percent", self.card_use_percent),)
        return " ".join([self.name, *(f"{key}={value:g}" for key, value in (*self.weights, *bound))])
