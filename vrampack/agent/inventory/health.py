"""Whether one card may be given out, by what the driver reported about it and by its checks. Pure.

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
    """The health of one card. A healthy card has no reason."""

    reason: str = ""
    failed_checks: int = 0
    """Failed checks in a row, while healthy."""
    clean_checks: int = 0
    """Clean checks in a row, while unhealthy."""
    verdict: CardVerdict | None = None
    """What lasts."""

    @property
    def is_healthy(self) -> bool:
        return not self.reason

    def mark_unhealthy(self, reason: str) -> CardHealth:
        """Unhealthy at once. The first reason stays until the card heals: later ones are its consequences."""
        return CardHealth(self.reason or reason, verdict=self.verdict)

    def mark_out(self, reason: str, verdict: CardVerdict) -> CardHealth:
        """Out of use until it is repaired. Of several verdicts the gravest counts, with its reason."""
        merged = merge_verdicts(self.verdict, verdict)
        return CardHealth(reason if merged is verdict else self.reason, verdict=merged)

    def record_failed_check(self, reason: str, *, max_failures: int) -> CardHealth:
        """A check failed: `max_failures` in a row make the card unhealthy."""
        if not self.is_healthy or self.failed_checks + 1 >= max_failures:
            return self.mark_unhealthy(reason)
        return replace(self, failed_checks=self.failed_checks + 1)

    def record_clean_check(self, *, required_checks: int, is_repaired: bool = False) -> CardHealth:
        """A check was clean: `required_checks` in a row make the card healthy.

        If the card is out by a verdict, only checks with evidence of its repair count.
        """
        if self.verdict is not None and not is_repaired:
            return replace(self, clean_checks=0)
        if self.is_healthy or self.clean_checks + 1 >= required_checks:
            return CardHealth()
        return replace(self, clean_checks=self.clean_checks + 1)
