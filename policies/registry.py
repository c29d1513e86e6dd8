"""Every policy by its name in configurations and annotations. To add one, write its module and give it a row here."""

from __future__ import annotations

from collections.abc import Mapping

from policies import binpack, node_binpack, spread
from policies.policy import Policy

POLICIES: Mapping[str, Policy] = {
    "binpack": binpack,
    "spread": spread,
    "node-binpack": node_binpack,
}
