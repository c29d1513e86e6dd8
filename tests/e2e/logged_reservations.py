"""The extender, which also logs every place it names, with or without its promises: for a before and an after.

    python -m tests.e2e.logged_reservations remember serve --config ...
    python -m tests.e2e.logged_reservations forget serve --config ...

The product has no switch for promises. With `forget` each one is dropped at once, so that a place which was named is
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
    """Promises as they are, told."""

    def make(self, uid: str, request: CardRequest, laid: Placement) -> None:
        log.info("named pod=%s node=%s cards=%s", uid, laid.node_name, ",".join(map(str, laid.cards)))
        super().reserve_placement(uid, request, laid)


class DroppedReservations(LoggedReservations):
    """Promises that nobody remembers."""

    def make(self, uid: str, request: CardRequest, laid: Placement) -> None:
        super().make(uid, request, laid)
        self.release_pod(uid)


KINDS: Final = {"remember": LoggedReservations, "forget": DroppedReservations}

if __name__ == "__main__":
    components.SoftReservations = KINDS[sys.argv[1]]  # type: ignore[attr-defined]  # a name that it imports: the one place where the service takes its promises from
    sys.exit(main(sys.argv[2:]))
