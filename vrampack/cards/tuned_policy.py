"""The policy that ranks nodes for a pod, as the configuration has tuned it."""

from __future__ import annotations

from typing import NamedTuple


class TunedPolicy(NamedTuple):
    """Equal ones rank alike and share what is computed; two of one policy with other numbers share nothing."""

    name: str
    """Of the policy."""
    weights: tuple[tuple[str, float], ...] = ()
    """Those that are not the policy's own, by name in order."""
    card_use_percent: int | None = None
    """Cards that would be fuller rank after all others; None: no card does."""

    @property
    def label(self) -> str:
        """The name, and what is not as the policy has it."""
        bound = () if self.card_use_percent is None else (("card_use_percent", self.card_use_percent),)
        return " ".join([self.name, *(f"{key}={value:g}" for key, value in (*self.weights, *bound))])
