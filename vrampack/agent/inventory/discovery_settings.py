"""How discovery checks the cards, and which of them are ours, out of the agent's configuration."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from vrampack.agent.inventory.xid_actions import XidAction, XidRules
from vrampack.agent.nvml.driver import Gpu
from vrampack.agent.settings import AgentConfiguration
from vrampack.cards.units import DEFAULT_UNIT_MIB


@dataclass(frozen=True, slots=True)
class DiscoverySettings:
    """How the cards are checked, and which are ours."""

    unit_mib: int = DEFAULT_UNIT_MIB
    units_per_card: Mapping[str, int] = field(default_factory=dict)
    """Units by model, for models whose memory does not divide evenly. Any usual spelling of the model works."""
    include: frozenset[str] = frozenset()
    """If not empty, only these are ours: uuids of cards, or of GPUs for all their instances."""
    exclude: frozenset[str] = frozenset()
    """These are not ours: another plugin has them."""
    check_seconds: float = 5
    fail_after_checks: int = 3
    """This many failed checks in a row make a card unhealthy: a single call may fail for a transient reason."""
    recover_after_checks: int = 3
    xids: XidRules = field(default_factory=XidRules)

    def is_selected(self, gpu: Gpu) -> bool:
        """Whether the card is ours."""
        names = {gpu.uuid, gpu.mig_parent}
        if names & self.exclude:
            return False
        return not self.include or bool(names & self.include)


def build_discovery_settings(settings: AgentConfiguration) -> DiscoverySettings:
    """The settings of discovery, out of the agent's configuration."""
    health = settings.health
    return DiscoverySettings(
        unit_mib=settings.unit_mib,
        units_per_card=settings.units_per_card,
        include=frozenset(settings.cards.include),
        exclude=frozenset(settings.cards.exclude),
        check_seconds=health.check_seconds,
        recover_after_checks=health.recover_after_checks,
        xids=XidRules(
            frozenset(health.xids.ignore),
            frozenset(health.xids.fatal),
            {
                XidAction.RESET: frozenset(health.xids.reset),
                XidAction.REBOOT: frozenset(health.xids.reboot),
                XidAction.HUMAN: frozenset(health.xids.human),
            },
        ),
    )
