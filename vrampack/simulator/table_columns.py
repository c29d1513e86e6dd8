"""The columns of the tables that `kubectl get` prints, in the real server's order. Priority 1 is for `-o wide`."""

from __future__ import annotations

from dataclasses import dataclass

from vrampack.simulator import table_cells
from vrampack.simulator.human_duration import UNKNOWN
from vrampack.simulator.resource_kinds import DEPLOYMENT, EVENT, NODE, POD, STATEFUL_SET, Object
from vrampack.simulator.table_cells import NONE, CellFormatter


@dataclass(frozen=True, slots=True)
class TableColumn:
    """One column, and what fills its cells."""

    name: str
    format_cell: CellFormatter
    priority: int = 0
    format: str = ""

    def build_definition(self) -> Object:
        what = self.name.lower()
        return {
            "name": self.name,
            "type": "string",
            "format": self.format,
            "description": f"The object's {what}, as kubectl prints it.",
            "priority": self.priority,
        }


NAME_COLUMN = TableColumn("Name", table_cells.format_name, format="name")
AGE_COLUMN = TableColumn("Age", table_cells.format_object_age)
TEMPLATE_COLUMNS = (
    TableColumn("Containers", table_cells.build_container_field_cell("name"), 1),
    TableColumn("Images", table_cells.build_container_field_cell("image"), 1),
)

COLUMNS_BY_PLURAL: dict[str, tuple[TableColumn, ...]] = {
    POD.plural: (
        NAME_COLUMN,
        TableColumn("Ready", table_cells.format_pod_ready),
        TableColumn("Status", table_cells.format_pod_status),
        TableColumn("Restarts", table_cells.format_pod_restarts),
        AGE_COLUMN,
        TableColumn("IP", table_cells.format_pod_ip, 1),
        TableColumn("Node", lambda pod, _: pod["spec"].get("nodeName") or NONE, 1),
        TableColumn("Nominated Node", lambda pod, _: pod["status"].get("nominatedNodeName") or NONE, 1),
        TableColumn("Readiness Gates", table_cells.format_readiness_gates, 1),
    ),
    NODE.plural: (
        NAME_COLUMN,
        TableColumn("Status", table_cells.format_node_status),
        TableColumn("Roles", table_cells.format_node_roles),
        AGE_COLUMN,
        TableColumn("Version", table_cells.build_node_info_cell("kubeletVersion", "")),
        TableColumn("Internal-IP", table_cells.build_node_address_cell("InternalIP"), 1),
        TableColumn("External-IP", table_cells.build_node_address_cell("ExternalIP"), 1),
        TableColumn("OS-Image", table_cells.build_node_info_cell("osImage", UNKNOWN), 1),
        TableColumn("Kernel-Version", table_cells.build_node_info_cell("kernelVersion", UNKNOWN), 1),
        TableColumn("Container-Runtime", table_cells.build_node_info_cell("containerRuntimeVersion", UNKNOWN), 1),
    ),
    EVENT.plural: (
        TableColumn("Last Seen", table_cells.format_event_last_seen),
        TableColumn("Type", table_cells.build_event_field_cell("type")),
        TableColumn("Reason", table_cells.build_event_field_cell("reason")),
        TableColumn("Object", table_cells.format_event_object),
        TableColumn("Subobject", lambda event, _: (event.get("involvedObject") or {}).get("fieldPath", ""), 1),
        TableColumn("Source", table_cells.format_event_source, 1),
        TableColumn("Message", table_cells.build_event_field_cell("message")),
        TableColumn("First Seen", table_cells.format_event_first_seen, 1),
        TableColumn("Count", table_cells.format_event_count, 1),
        TableColumn("Name", table_cells.format_name, 1, format="name"),
    ),
    STATEFUL_SET.plural: (
        NAME_COLUMN,
        TableColumn("Ready", table_cells.format_ready_replicas),
        AGE_COLUMN,
        *TEMPLATE_COLUMNS,
    ),
    DEPLOYMENT.plural: (
        NAME_COLUMN,
        TableColumn("Ready", table_cells.format_ready_replicas),
        TableColumn("Up-to-date", table_cells.build_status_count_cell("updatedReplicas")),
        TableColumn("Available", table_cells.build_status_count_cell("availableReplicas")),
        AGE_COLUMN,
        *TEMPLATE_COLUMNS,
        TableColumn("Selector", table_cells.format_workload_selector, 1),
    ),
}
"""Columns by the kind's plural, in the real server's order."""
