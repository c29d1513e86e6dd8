"""Whether one card may be given out: what the driver reported of it, and what its checks said. Pure.

```
            an XID without advice, lost, or N failed checks
  healthy ---------------------------------------------------> unhealthy (with the reason)
     ^ ^                                                           |
     | +----------------- M clean checks in a row -----------------+   a failed check or an XID starts the count again
     |
     |      an XID that asks for a repair, or NVML says so
     |  -------------------------------------------------------> out by a verdict
     +--- M clean checks in a row with evidence of the repair -----+   `verdicts.py` says what is evidence
```

A passing fault (a stuck driver) heals by itself. A card that needs a repair stays out across restarts.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from vrampack.agent.inventory.verdicts import merge_verdicts
from vrampack.cards.node import CardVerdict


@dataclass(frozen=True, slots=True)
class CardHealth:
    """One card's. A healthy card has no reason."""

    reason: str = ""
    failed_checks: int = 0
    """In a row, while healthy."""
    clean_checks: int = 0
    """In a row, while unhealthy."""
    verdict: CardVerdict | None = None
    """What lasts."""

    @property
    def is_healthy(self) -> bool:
        return not self.reason

    def mark_unhealthy(self, reason: str) -> CardHealth:
        """Unhealthy at once. The first reason stays until the card heals: what follows is its consequence."""
        return CardHealth(self.reason or reason, verdict=self.verdict)

    def mark_out(self, reason: str, verdict: CardVerdict) -> CardHealth:
        """Out of use until a repair. Of several verdicts the gravest counts, with its reason."""
        merged = merge_verdicts(self.verdict, verdict)
        return CardHealth(reason if merged is verdict else self.reason, verdict=merged)

    def record_failed_check(self, reason: str, *, max_failures: int) -> CardHealth:
        """A check failed: one does not mean much, `max_failures` in a row make it unhealthy."""
        if not self.is_healthy or self.failed_checks + 1 >= max_failures:
            return self.mark_unhealthy(reason)
        return replace(self, failed_checks=self.failed_checks + 1)

    def record_clean_check(self, *, required_checks: int, is_repaired: bool = False) -> CardHealth:
        """A check was clean: after `required_checks` in a row the card is as good as new.

        Of a card that is out by a verdict only those count at which there was evidence of its repair.
        """
        if self.verdict is not None and not is_repaired:
            return replace(self, clean_checks=0)
        if self.is_healthy or self.clean_checks + 1 >= required_checks:
            return CardHealth()
        return replace(self, clean_checks=self.clean_checks + 1)
