"""Whether one card may be given out: what the driver reported of it, and what its checks said. Pure.

```
            an XID that matters, lost, or N failed checks
  healthy ------------------------------------------------> unhealthy (with the reason)
     ^                                                          |
     +----------------- M clean checks in a row ----------------+   a failed check or an XID starts the count anew
```

A card heals by itself because most of what makes one unhealthy passes: a reset, a driver that was stuck. One that
should stay out until a person looked at it is cordoned.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

APPLICATION_XIDS = frozenset({13, 31, 43, 45, 68, 109})
"""Errors of the program on the card, not of the card; NVIDIA's own device plugin ignores the same six."""


@dataclass(frozen=True, slots=True)
class XidRules:
    """Which errors make a card unhealthy: all but the application's own."""

    ignored: frozenset[int] = frozenset()
    """Not these either."""
    fatal: frozenset[int] = frozenset()
    """These do, whatever else is said of them."""

    def makes_unhealthy(self, number: int) -> bool:
        return number in self.fatal or number not in APPLICATION_XIDS | self.ignored


@dataclass(frozen=True, slots=True)
class CardHealth:
    """One card's. A healthy card has no reason."""

    reason: str = ""
    failed_checks: int = 0
    """In a row, while healthy."""
    clean_checks: int = 0
    """In a row, while unhealthy."""

    @property
    def is_healthy(self) -> bool:
        return not self.reason

    def mark_unhealthy(self, reason: str) -> CardHealth:
        """Unhealthy at once. The first reason stays until the card heals: what follows is its consequence."""
        return CardHealth(self.reason or reason)

    def record_failed_check(self, reason: str, *, max_failures: int) -> CardHealth:
        """A check failed: one does not mean much, `allowed` in a row make it unhealthy."""
        if not self.is_healthy or self.failed_checks + 1 >= max_failures:
            return self.mark_unhealthy(reason)
        return replace(self, failed_checks=self.failed_checks + 1)

    def record_clean_check(self, *, required_checks: int) -> CardHealth:
        """A check was clean: after `needed` in a row the card is as good as new."""
        if self.is_healthy or self.clean_checks + 1 >= required_checks:
            return CardHealth()
        return replace(self, clean_checks=self.clean_checks + 1)
