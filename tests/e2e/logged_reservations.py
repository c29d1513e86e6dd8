"""The extender, which also logs every place it names, with or without its soft reservations: for a before and an after.

    python -m tests.e2e.logged_reservations remember serve --config ...
    python -m tests.e2e.logged_reservations forget serve --config ...

The product has no switch for soft reservations. With `forget` each one is dropped at once, so that a place which was named is
named to the next pod again: what the extender did before it had them.
"""

from __future__ import annotations

import logging
import sys
from typing import Final

from extender import components
from extender.state.soft_reservations import SoftReservations
from policies.trial_placement import Placement
from vrampack.cards.request import CardRequest
from vrampack.cli.main import main

log = logging.getLogger(__name__)


class LoggedReservations(SoftReservations):
    """Soft reservations as they are, logged."""

    def reserve_placement(self, uid: str, request: CardRequest, placement: Placement) -> None:
        log.info("named pod=%s node=%s cards=%s", uid, placement.node_name, ",".join(map(str, placement.cards)))
        super().reserve_placement(uid, request, placement)


class DroppedReservations(LoggedReservations):
    """Soft reservations that are dropped at once."""

    def reserve_placement(self, uid: str, request: CardRequest, placement: Placement) -> None:
        super().reserve_placement(uid, request, placement)
        self.release_pod(uid)


KINDS: Final = {"remember": LoggedReservations, "forget": DroppedReservations}

if __name__ == "__main__":
    components.SoftReservations = KINDS[sys.argv[1]]  # type: ignore[attr-defined]  # a name that it imports: the one place where the service takes its soft reservations from
    sys.exit(main(sys.argv[2:]))
