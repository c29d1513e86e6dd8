"""Definitions of other projects' kinds: applied, and awaited."""

from __future__ import annotations

import json
from pathlib import Path

from tests.support.control_plane.cluster import ControlPlane


def establish_definition(cluster: ControlPlane, file: Path) -> None:
    """Apply it, and wait until the API server takes objects of its kind."""
    cluster.kubectl("apply", "--server-side", "-f", file)

    def is_established() -> bool:
        found = json.loads(cluster.kubectl("get", "-f", file, "-o", "json").stdout)
        conditions = found.get("status", {}).get("conditions") or []
        return any(each["type"] == "Established" and each["status"] == "True" for each in conditions)

    cluster.wait_until(is_established, what=f"{file.name} is established")
