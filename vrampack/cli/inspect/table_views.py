"""The tables that people know from gpushare, the same to the last blank: summary and details; and a wide one, a row per card.

The cell of a card with a problem ends in a mark, and text below the table explains it. docs/cli.md shows them all.
"""

from __future__ import annotations

from vrampack.cards.inspection import count_units_on_card, count_unplaced_units
from vrampack.cards.node import Card
from vrampack.cards.units import DEFAULT_UNIT_MIB
from vrampack.cli.inspect.cluster import InspectedCluster, InspectedNode
from vrampack.cli.inspect.text_columns import PROBLEM_MARK, align_columns, replace_unprintable

NO_MEMORY_TEXT = "No node of this cluster has GPU memory to share.\n"
SUMMARY_RULE_EXTRA = 20
DETAILS_RULE_EXTRA = 10
"""How many dashes a rule is longer than the row, or rows, it is measured by; tabs and newlines count as one character."""

WIDE_HEADINGS = ("NODE", "CARD", "MODEL", "UUID", "MEMORY(MiB)", "USED/TOTAL", "LIMITS", "STATE", "PODS")
INSTANCES_COLUMN = 6
"""Left out where back ends can hold any number of limits."""


def format_summary(cluster: InspectedCluster, *, max_width: int | None = None) -> str:
    """One line per node, one column per card; where that is too wide, short headings, and then the wide table."""
    if not cluster.nodes:
        return NO_MEMORY_TEXT + _format_problems(cluster)
    indices = sorted({card.index for view in cluster.nodes for card in view.node.cards})
    has_unplaced = any(view.unplaced for view in cluster.nodes)
    unit = "GiB" if cluster.unit_mib == DEFAULT_UNIT_MIB else f"{cluster.unit_mib} MiB"
    headings = ["NAME", "IPADDRESS", *(f"GPU{index}(Allocated/Total)" for index in indices)]
    headings += ["PENDING(Allocated)"] * has_unplaced + [f"GPU Memory({unit})"]
    rows = [_build_summary_row(view, indices, has_unplaced=has_unplaced) for view in cluster.nodes]
    rule = "-" * (len("\t".join(rows[0]) + "\n") + SUMMARY_RULE_EXTRA)
    table = align_columns([headings, *rows])
    if max_width is not None and _measure_width(table) > max_width:
        short = [text.removesuffix("(Allocated/Total)").removesuffix("(Allocated)") for text in headings]
        table, rule = align_columns([short, *rows]), rule[:max_width]
        if _measure_width(table) > max_width:
            return format_wide(cluster, max_width=max_width)
    sums = f"{rule}\nAllocated/Total GPU Memory In Cluster:\n{_format_sums(cluster)}\n"
    return table + sums + _format_problems(cluster)


def format_details(cluster: InspectedCluster) -> str:
    """One table per node, one line per pod."""
    if not cluster.nodes:
        return NO_MEMORY_TEXT + _format_problems(cluster)
    rule = "-" * (sum(len("\t".join([*row, "\n"])) for row in _build_pod_rows(cluster.nodes[0])) + DETAILS_RULE_EXTRA)
    tables = "".join(f"{_format_node_details(view)}{rule}\n\n" for view in cluster.nodes)
    return f"{tables}Allocated/Total GPU Memory In Cluster:  {_format_sums(cluster)}\n" + _format_problems(cluster)


def format_wide(cluster: InspectedCluster, *, max_width: int | None = None) -> str:
    """One line per card, to find a model, a uuid or a card with a problem."""
    if not cluster.nodes:
        return NO_MEMORY_TEXT + _format_problems(cluster)
    rows = [[*WIDE_HEADINGS], *(row for view in cluster.nodes for row in _build_wide_rows(view))]
    right_columns = {1, 4, 5}
    if any(view.node.counts_instances for view in cluster.nodes):
        right_columns.add(INSTANCES_COLUMN)
    else:
        for row in rows:
            del row[INSTANCES_COLUMN]
    return align_columns(rows, right_columns=right_columns, max_width=max_width) + _format_problems(cluster)


def list_problems(cluster: InspectedCluster) -> list[str]:
    """What a person should look into, by node and card."""
    found = [line for view in cluster.nodes for line in _list_node_problems(view)]
    found += [f"{each.object_name}: {each.problem}; left out" for each in cluster.unread_objects]
    return [replace_unprintable(line) for line in found]


def _measure_width(table: str) -> int:
    return max(map(len, table.splitlines()))


def _build_summary_row(view: InspectedNode, indices: list[int], *, has_unplaced: bool) -> list[str]:
    cards = {card.index: card for card in view.node.cards}
    row = [view.node.name, view.node.address or "unknown"]
    row += [_format_card_cell(view, cards[index]) if index in cards else "0/0" for index in indices]
    if has_unplaced:
        row.append(str(view.unplaced_units) if view.unplaced else "")
    return [*row, f"{view.used_units}/{view.total_units}" + PROBLEM_MARK * bool(view.node.problem)]


def _format_card_cell(view: InspectedNode, card: Card) -> str:
    return f"{count_units_on_card(card.index, view.holds)}/{card.units}" + PROBLEM_MARK * _has_problem(card)


def _format_node_details(view: InspectedNode) -> str:
    headings = ["NAME", "NAMESPACE"]
    headings += [f"GPU{card.index}(Allocated)" + PROBLEM_MARK * _has_problem(card) for card in view.node.cards]
    headings += ["Pending(Allocated)"] * bool(view.unplaced)
    used = f"{view.used_units} ({_compute_percent(view.used_units, view.total_units)}%)"
    sums = [["Allocated :", used], ["Total :", str(view.total_units)]]
    node = [["NAME:", view.node.name], ["IPADDRESS:", view.node.address or "unknown"]]
    return f"{align_columns(node)}\n{align_columns([headings, *_build_pod_rows(view), *sums])}"


def _build_pod_rows(view: InspectedNode) -> list[list[str]]:
    rows = []
    for hold in view.holds:
        known = {} if hold.unplaced_reason else hold.units
        row = [hold.pod.name, hold.pod.namespace, *(str(known.get(card.index, 0)) for card in view.node.cards)]
        if view.unplaced:
            row.append(str(count_unplaced_units(view.node, hold) if hold.unplaced_reason else 0))
        rows.append(row)
    return rows


def _build_wide_rows(view: InspectedNode) -> list[list[str]]:
    """Rows of the node's cards, then one for pods on no known card, or for a node without cards."""
    rows = [_build_wide_row(view, card) for card in view.node.cards]
    if view.unplaced:
        pods = ",".join(str(hold.pod) for hold in view.unplaced)
        rows.append(
            [view.node.name, "?", "-", "-", "-", f"{view.unplaced_units}/-", "-", f"unplaced{PROBLEM_MARK}", pods]
        )
    if not rows:
        rows.append([view.node.name, *["-"] * 6, f"problem{PROBLEM_MARK}", "-"])
    return rows


def _build_wide_row(view: InspectedNode, card: Card) -> list[str]:
    states = [*_list_card_states(card), *["refused"] * bool(view.node.problem)]
    state = ",".join([*states, *["legacy"] * view.node.legacy]) or "ok"
    pods = ",".join(str(hold.pod) for hold in view.holds if not hold.unplaced_reason and card.index in hold.units)
    used = f"{count_units_on_card(card.index, view.holds)}/{card.units}"
    named = [card.model or "-", card.uuid or "-", str(card.memory_mib)]
    room = card.instances
    limits = "-" if room is None else f"{room.used}/{room.most}"
    return [view.node.name, str(card.index), *named, used, limits, state + PROBLEM_MARK * bool(states), pods or "-"]


def _list_node_problems(view: InspectedNode) -> list[str]:
    name = view.node.name
    found = [f"{name} GPU{card.index} {said}" for card in view.node.cards for said in _list_card_problems(view, card)]
    for hold in view.unplaced:
        units = count_unplaced_units(view.node, hold)
        found.append(
            f"{name} holds {units} unit{'s' * (units != 1)} on no known card: {hold.pod} ({hold.unplaced_reason})"
        )
    return found + [f"{name}: {view.node.problem}"] * bool(view.node.problem)


def _list_card_problems(view: InspectedNode, card: Card) -> list[str]:
    states = [state for state in _list_card_states(card) if state != "overcommitted"]
    said = [
        f"is {state} ({card.reason})" if state == "unhealthy" and card.reason else f"is {state}" for state in states
    ]
    if card.is_overcommitted:
        held = count_units_on_card(card.index, view.holds)
        if held > card.units:
            said.append(f"is overcommitted: {held} of {card.units} units")
        else:
            said.append(f"may be overcommitted: {card.used_units} of {card.units} units with pods on no known card")
    return said


def _list_card_states(card: Card) -> list[str]:
    states = {"unhealthy": not card.healthy, "cordoned": card.cordoned, "overcommitted": card.is_overcommitted}
    return [state for state, is_so in states.items() if is_so]


def _has_problem(card: Card) -> bool:
    return bool(_list_card_states(card))


def _format_sums(cluster: InspectedCluster) -> str:
    percent = _compute_percent(cluster.used_units, cluster.total_units)
    return f"{cluster.used_units}/{cluster.total_units} ({percent}%)"


def _compute_percent(used: int, total: int) -> int:
    """The percentage, truncated as in gpushare, so that 100 means full."""
    return used * 100 // total if total else 0


def _format_problems(cluster: InspectedCluster) -> str:
    lines = list_problems(cluster)
    return "\n" + "".join(f"{PROBLEM_MARK} {line}\n" for line in lines) if lines else ""
