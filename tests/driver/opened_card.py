"""Containers and programs on a card that the driver opens, and what the card loses to them."""

from __future__ import annotations

import re

from tests.driver.real_driver import LIMIT_MIB, OPENED_BRANCH, RealDriver
from tests.shim.kmod.world import BudgetPlace

ENV = {"RM_BRANCH": OPENED_BRANCH}
"""Programs make their calls in the shapes of this driver."""


def limited(card: RealDriver, name: str, mib: int = LIMIT_MIB) -> BudgetPlace:
    """A container; our module is loaded."""
    card.load_shim()
    return card.world.limited(name, {0: mib}).inside(env=ENV)


def on_node(card: RealDriver) -> BudgetPlace:
    return card.world.host().inside(env=ENV)


def read_lost_mib(card: RealDriver) -> int:
    """What all clients hold of the card, as a client without a limit sees it."""
    ended = on_node(card).run("app", "--free")
    figures = re.fullmatch(r"free (\d+) MiB of (\d+) MiB\n", ended.out)
    assert figures, ended
    return int(figures[2]) - int(figures[1])
