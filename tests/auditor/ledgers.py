"""What an extender's inspect answer shows: its ledger equals a recount from the API (I3), and no place becomes too old (I5, I11, I13).

For I3 ask when both are quiet. A place that is still reserved then is a difference too: no bind is under way that explains it.
A held place is none: its pod waits in the scheduler, and the API shows nothing of that.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator

from tests.auditor.cards import NodeCards, read_node
from tests.auditor.holdings import find_holdings
from tests.auditor.pods import AuditedPod, read_pod
from tests.auditor.raw import Raw, listing, mapping, text, whole_number
from tests.auditor.terms import Terms, Violation

DEFAULT_TERMS = Terms()
LONGEST_RESERVATION_SECONDS = 30
LONGEST_PROMISE_SECONDS = 2
LONGEST_HOLD_SECONDS = 1500
POLL_SECONDS = 5
"""Holds that are too old are looked for once a second, and a deletion takes its time to our watch."""
OF_A_BOUND_POD = ("bound", "terminating")


def wrong_ledger(
    shown: Raw, pods: Iterable[Raw], nodes: Iterable[Raw], *, terms: Terms = DEFAULT_TERMS
) -> list[Violation]:
    """Every difference between an inspect answer and the API's pods and nodes, sorted."""
    cards = {node.name: node for node in (read_node(raw, terms) for raw in nodes)}
    on_node: defaultdict[str, list[AuditedPod]] = defaultdict(list)
    for pod in (read_pod(raw, terms) for raw in pods):
        if pod.is_live:
            on_node[pod.node].append(pod)
    ledger = {text(node.get("name")): mapping(node) for node in listing(shown.get("nodes"))}
    found = set(_unknown(ledger.keys() - cards.keys()))
    for node in cards.values():
        found.update(_differences(node, on_node[node.name], ledger.get(node.name, {})))
    return sorted(found)


def stale_places(shown: Raw, pods: Iterable[Raw], *, terms: Terms = DEFAULT_TERMS) -> list[Violation]:
    """I5, I11 and I13: places that an inspect answer shows longer than they may be held, sorted."""
    waiting = {
        pod.uid
        for pod in (read_pod(raw, terms) for raw in pods)
        if not pod.node and pod.phase not in {"Succeeded", "Failed"}
    }
    found = []
    for each in map(mapping, listing(shown.get("reservations"))):
        uid, age = text(each.get("uid")), _seconds(each)
        if age > LONGEST_RESERVATION_SECONDS and uid not in waiting:
            found.append(Violation("I5", f"uid {uid}", f"reserved for {age:.0f} s without a live unbound pod"))
    for each in map(mapping, listing(shown.get("promises"))):
        uid, age = text(each.get("uid")), _seconds(each)
        if age > LONGEST_PROMISE_SECONDS:
            found.append(Violation("I11", f"uid {uid}", f"promised for {age:.1f} s"))
    for each in map(mapping, listing(shown.get("holds"))):
        uid, age = text(each.get("uid")), _seconds(each)
        if age > LONGEST_HOLD_SECONDS + POLL_SECONDS:
            found.append(Violation("I13", f"uid {uid}", f"held for {age:.0f} s"))
        elif age > POLL_SECONDS and uid not in waiting:
            found.append(Violation("I13", f"uid {uid}", f"held for {age:.0f} s without a live unbound pod"))
    return sorted(found)


def _seconds(shown: Raw) -> float:
    """The age of a place; one without an age counts as infinitely old."""
    age = shown.get("ageSeconds")
    return float(age) if isinstance(age, int | float) else float("inf")


def _unknown(names: Iterable[str]) -> Iterator[Violation]:
    for name in names:
        yield Violation("I3", f"node {name}", "the ledger has it, the API does not")


def _differences(node: NodeCards, live: list[AuditedPod], shown: Raw) -> Iterator[Violation]:
    devices = {whole_number(device.get("id")): device for device in map(mapping, listing(shown.get("devs")))}
    for card in node.cards:
        where = f"node {node.name} card {card.index}"
        device = mapping(devices.get(card.index))
        want = {holding.pod.uid: holding.units for holding in find_holdings(node, card, live)}
        holders = list(map(mapping, listing(device.get("pods"))))
        held_units = sum(whole_number(each.get("usedGPU")) or 0 for each in holders if each.get("state") == "held")
        have = {text(each.get("uid")): each for each in holders if each.get("state") != "held"}
        if device.get("totalGPU") != card.units:
            yield Violation("I3", where, f"the ledger has {device.get('totalGPU')} units, the API {card.units}")
        if device.get("usedGPU") != sum(want.values()) + held_units:
            yield Violation("I3", where, f"the ledger uses {device.get('usedGPU')} units, the API {sum(want.values())}")
        for uid in sorted(want.keys() | have.keys()):
            holder = mapping(have.get(uid))
            if holder.get("usedGPU") != want.get(uid) or holder.get("state") not in OF_A_BOUND_POD:
                told = f"{holder.get('usedGPU')} units, {holder.get('state')}" if holder else "nothing"
                yield Violation("I3", where, f"of uid {uid} the ledger has {told}, the API {want.get(uid, 0)} units")
