"""The whole audit in one pure function: raw pods, raw nodes and a transcript in, broken promises out.

Run it when the cluster is quiet: the lists are of two moments, and a bind in flight is neither yes nor no yet.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable

from tests.auditor.allocations import wrong_allocations
from tests.auditor.binds import read_binds, wrong_answers
from tests.auditor.cards import read_node
from tests.auditor.holdings import find_oversold_cards
from tests.auditor.pods import AuditedPod, read_pod
from tests.auditor.raw import Raw
from tests.auditor.terms import Terms, Violation

DEFAULT_TERMS = Terms()


def audit_objects(
    pods: Iterable[Raw],
    nodes: Iterable[Raw],
    transcript: Iterable[Raw] = (),
    *,
    terms: Terms = DEFAULT_TERMS,
    complete: bool = False,
    count_unrecorded: bool = True,
    excused: Collection[str] = (),
) -> list[Violation]:
    """Every broken promise, sorted.

    `complete` says that the transcript holds every bind call there was. `count_unrecorded` counts a live pod without a
    readable record on every card of its node, as the ledger must. `excused` are objects (`pod ml/forged`, `node n1 card 0`)
    that the test itself has spoiled: still counted, not reported.
    """
    seen = [read_pod(pod, terms) for pod in pods]
    cards = {node.name: node for node in (read_node(raw, terms) for raw in nodes)}
    on_node: defaultdict[str, list[AuditedPod]] = defaultdict(list)
    for pod in seen:
        on_node[pod.node].append(pod)
    found: set[Violation] = set()
    for node in cards.values():
        found.update(find_oversold_cards(node, on_node[node.name], count_unrecorded=count_unrecorded))
    for pod in seen:
        if pod.is_live:
            found.update(wrong_allocations(pod, cards.get(pod.node), terms))
        if not pod.node:
            found.update(_records_without_node(pod, terms))
    found.update(wrong_answers(read_binds(transcript), seen, complete=complete))
    return sorted(violation for violation in found if violation.object not in excused)


def _records_without_node(pod: AuditedPod, terms: Terms) -> Iterable[Violation]:
    """I6: unbound pods carry no record."""
    if records := sorted(key for key in pod.notes if terms.is_record(key)):
        yield Violation("I6", pod.object, f"unbound, and carries {', '.join(records)}")
