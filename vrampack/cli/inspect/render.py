"""The tables that people know from gpushare, down to the blank: summary and details; and the wide one, a row per card.

What is in trouble ends in a mark, and stands in words below the table. docs/cli.md shows them all.
"""

from __future__ import annotations

from vrampack.cards.inspection import count_units_on_card, count_unplaced_units
from vrampack.cards.node import Card
from vrampack.cards.units import DEFAULT_UNIT_MIB
from vrampack.cli.inspect.gather import Cluster, NodeView
from vrampack.cli.inspect.tables import MARK, aligned, printable

NOTHING = "No node of this cluster has GPU memory to share.\n"
SUMMARY_RULE = 20
DETAILS_RULE = 10
"""Dashes beyond the length of the row, or rows, that a rule is measured by: tabs and newlines count as one."""

WIDE_HEADINGS = ("NODE", "CARD", "MODEL", "UUID", "MEMORY(MiB)", "USED/TOTAL", "STATE", "PODS")


def summary(cluster: Cluster) -> str:
    """One line per node, one column per card."""
    if not cluster.nodes:
        return NOTHING + _trouble(cluster)
    indices = sorted({card.index for view in cluster.nodes for card in view.node.cards})
    has_unplaced = any(view.unplaced for view in cluster.nodes)
    unit = "GiB" if cluster.unit_mib == DEFAULT_UNIT_MIB else f"{cluster.unit_mib} MiB"
    headings = ["NAME", "IPADDRESS", *(f"GPU{index}(Allocated/Total)" for index in indices)]
    headings += ["PENDING(Allocated)"] * has_unplaced + [f"GPU Memory({unit})"]
    rows = [_summary_row(view, indices, has_unplaced=has_unplaced) for view in cluster.nodes]
    rule = "-" * (len("\t".join(rows[0]) + "\n") + SUMMARY_RULE)
    sums = f"{rule}\nAllocated/Total GPU Memory In Cluster:\n{_sums(cluster)}\n"
    return aligned([headings, *rows]) + sums + _trouble(cluster)


def details(cluster: Cluster) -> str:
    """One table per node, one line per pod."""
    if not cluster.nodes:
        return NOTHING + _trouble(cluster)
    rule = "-" * (sum(len("\t".join([*row, "\n"])) for row in _pod_rows(cluster.nodes[0])) + DETAILS_RULE)
    tables = "".join(f"{_details_of(view)}{rule}\n\n" for view in cluster.nodes)
    return f"{tables}Allocated/Total GPU Memory In Cluster:  {_sums(cluster)}\n" + _trouble(cluster)


def wide(cluster: Cluster) -> str:
    """One line per card, for people who look for a model, a uuid or a card in trouble."""
    if not cluster.nodes:
        return NOTHING + _trouble(cluster)
    rows = [row for view in cluster.nodes for row in _wide_rows(view)]
    return aligned([WIDE_HEADINGS, *rows], right=(1, 4, 5)) + _trouble(cluster)


def trouble(cluster: Cluster) -> list[str]:
    """What a human should look at, by node and card, in words."""
    found = [line for view in cluster.nodes for line in _node_trouble(view)]
    found += [f"{each.what}: {each.problem}; left out" for each in cluster.unread]
    return [printable(line) for line in found]


def _summary_row(view: NodeView, indices: list[int], *, has_unplaced: bool) -> list[str]:
    cards = {card.index: card for card in view.node.cards}
    row = [view.node.name, view.node.address or "unknown"]
    row += [_card_cell(view, cards[index]) if index in cards else "0/0" for index in indices]
    if has_unplaced:
        row.append(str(view.unplaced_units) if view.unplaced else "")
    return [*row, f"{view.used_units}/{view.total_units}" + MARK * bool(view.node.problem)]


def _card_cell(view: NodeView, card: Card) -> str:
    return f"{count_units_on_card(card.index, view.holds)}/{card.units}" + MARK * _is_in_trouble(card)


def _details_of(view: NodeView) -> str:
    headings = ["NAME", "NAMESPACE"]
    headings += [f"GPU{card.index}(Allocated)" + MARK * _is_in_trouble(card) for card in view.node.cards]
    headings += ["Pending(Allocated)"] * bool(view.unplaced)
    used = f"{view.used_units} ({_percent(view.used_units, view.total_units)}%)"
    sums = [["Allocated :", used], ["Total :", str(view.total_units)]]
    node = [["NAME:", view.node.name], ["IPADDRESS:", view.node.address or "unknown"]]
    return f"{aligned(node)}\n{aligned([headings, *_pod_rows(view), *sums])}"


def _pod_rows(view: NodeView) -> list[list[str]]:
    rows = []
    for hold in view.holds:
        known = {} if hold.unplaced_reason else hold.units
        row = [hold.pod.name, hold.pod.namespace, *(str(known.get(card.index, 0)) for card in view.node.cards)]
        if view.unplaced:
            row.append(str(count_unplaced_units(view.node, hold) if hold.unplaced_reason else 0))
        rows.append(row)
    return rows


def _wide_rows(view: NodeView) -> list[list[str]]:
    """Its cards, then a row for the pods that are on none of them, or for a node that has no card to show."""
    rows = [_wide_row(view, card) for card in view.node.cards]
    if view.unplaced:
        pods = ",".join(str(hold.pod) for hold in view.unplaced)
        rows.append([view.node.name, "?", "-", "-", "-", f"{view.unplaced_units}/-", f"unplaced{MARK}", pods])
    if not rows:
        rows.append([view.node.name, "-", "-", "-", "-", "-", f"problem{MARK}", "-"])
    return rows


def _wide_row(view: NodeView, card: Card) -> list[str]:
    states = [*_states(card), *["refused"] * bool(view.node.problem)]
    state = ",".join([*states, *["legacy"] * view.node.legacy]) or "ok"
    pods = ",".join(str(hold.pod) for hold in view.holds if not hold.unplaced_reason and card.index in hold.units)
    used = f"{count_units_on_card(card.index, view.holds)}/{card.units}"
    named = [card.model or "-", card.uuid or "-", str(card.memory_mib)]
    return [view.node.name, str(card.index), *named, used, state + MARK * bool(states), pods or "-"]


def _node_trouble(view: NodeView) -> list[str]:
    name = view.node.name
    found = [f"{name} GPU{card.index} {said}" for card in view.node.cards for said in _card_trouble(view, card)]
    for hold in view.unplaced:
        units = count_unplaced_units(view.node, hold)
        found.append(
            f"{name} holds {units} unit{'s' * (units != 1)} on no known card: {hold.pod} ({hold.unplaced_reason})"
        )
    return found + [f"{name}: {view.node.problem}"] * bool(view.node.problem)


def _card_trouble(view: NodeView, card: Card) -> list[str]:
    said = [f"is {state}" for state in _states(card) if state != "overcommitted"]
    if card.is_overcommitted:
        held = count_units_on_card(card.index, view.holds)
        if held > card.units:
            said.append(f"is overcommitted: {held} of {card.units} units")
        else:
            said.append(f"may be overcommitted: {card.used_units} of {card.units} units with pods on no known card")
    return said


def _states(card: Card) -> list[str]:
    states = {"unhealthy": not card.healthy, "cordoned": card.cordoned, "overcommitted": card.is_overcommitted}
    return [state for state, is_so in states.items() if is_so]


def _is_in_trouble(card: Card) -> bool:
    return bool(_states(card))


def _sums(cluster: Cluster) -> str:
    percent = _percent(cluster.used_units, cluster.total_units)
    return f"{cluster.used_units}/{cluster.total_units} ({percent}%)"


def _percent(used: int, total: int) -> int:
    """Truncated, as people know it: 99 % is not full."""
    return used * 100 // total if total else 0


def _trouble(cluster: Cluster) -> str:
    lines = trouble(cluster)
    return "\n" + "".join(f"{MARK} {line}\n" for line in lines) if lines else ""
