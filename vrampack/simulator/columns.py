"""The columns of the tables that `kubectl get` prints, in the real server's order. Priority 1 is for `-o wide`."""

from __future__ import annotations

from dataclasses import dataclass

from vrampack.simulator import cells
from vrampack.simulator.ages import UNKNOWN
from vrampack.simulator.cells import NONE, Cell
from vrampack.simulator.kinds import DEPLOYMENT, EVENT, NODE, POD, STATEFUL_SET, Object


@dataclass(frozen=True, slots=True)
class Column:
    """One column, and what fills its cells."""

    name: str
    cell: Cell
    priority: int = 0
    format: str = ""

    def definition(self) -> Object:
        what = self.name.lower()
        return {
            "name": self.name,
            "type": "string",
            "format": self.format,
            "description": f"The object's {what}, as kubectl prints it.",
            "priority": self.priority,
        }


NAME = Column("Name", cells.name, format="name")
AGE = Column("Age", cells.object_age)
TEMPLATE = (Column("Containers", cells.of_containers("name"), 1), Column("Images", cells.of_containers("image"), 1))

COLUMNS: dict[str, tuple[Column, ...]] = {
    POD.plural: (
        NAME,
        Column("Ready", cells.pod_ready),
        Column("Status", cells.pod_status),
        Column("Restarts", cells.pod_restarts),
        AGE,
        Column("IP", cells.pod_ip, 1),
        Column("Node", lambda pod, _: pod["spec"].get("nodeName") or NONE, 1),
        Column("Nominated Node", lambda pod, _: pod["status"].get("nominatedNodeName") or NONE, 1),
        Column("Readiness Gates", cells.pod_gates, 1),
    ),
    NODE.plural: (
        NAME,
        Column("Status", cells.node_status),
        Column("Roles", cells.node_roles),
        AGE,
        Column("Version", cells.node_info("kubeletVersion", "")),
        Column("Internal-IP", cells.node_address("InternalIP"), 1),
        Column("External-IP", cells.node_address("ExternalIP"), 1),
        Column("OS-Image", cells.node_info("osImage", UNKNOWN), 1),
        Column("Kernel-Version", cells.node_info("kernelVersion", UNKNOWN), 1),
        Column("Container-Runtime", cells.node_info("containerRuntimeVersion", UNKNOWN), 1),
    ),
    EVENT.plural: (
        Column("Last Seen", cells.event_last_seen),
        Column("Type", cells.event_text("type")),
        Column("Reason", cells.event_text("reason")),
        Column("Object", cells.event_object),
        Column("Subobject", lambda event, _: (event.get("involvedObject") or {}).get("fieldPath", ""), 1),
        Column("Source", cells.event_source, 1),
        Column("Message", cells.event_text("message")),
        Column("First Seen", cells.event_first_seen, 1),
        Column("Count", cells.event_count, 1),
        Column("Name", cells.name, 1, format="name"),
    ),
    STATEFUL_SET.plural: (NAME, Column("Ready", cells.replicas_ready), AGE, *TEMPLATE),
    DEPLOYMENT.plural: (
        NAME,
        Column("Ready", cells.replicas_ready),
        Column("Up-to-date", cells.count("updatedReplicas")),
        Column("Available", cells.count("availableReplicas")),
        AGE,
        *TEMPLATE,
        Column("Selector", cells.selector, 1),
    ),
}
"""By the kind's plural; in the real server's order."""
