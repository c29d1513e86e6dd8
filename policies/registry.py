"""Every policy by its name in configurations and annotations. To add one, write its module and give it a row here."""

from __future__ import annotations

from collections.abc import Mapping

from policies import binpack, fragmentation, node_binpack, spread, sum_of_squares, tessellate
from policies.policy import Policy

POLICIES: Mapping[str, Policy] = {
    "binpack": binpack,
    "spread": spread,
    "node-binpack": node_binpack,
    "sum-of-squares": sum_of_squares,
    "fragmentation": fragmentation,
    "tessellate": tessellate,
}
