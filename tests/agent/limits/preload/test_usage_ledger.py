"""Compares the usage ledger with a model that keeps every figure and adds them all up at each call."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from vrampack.agent.limits.accounting import UsageTotals
from vrampack.agent.limits.cgroups import CgroupOwner
from vrampack.agent.limits.preload.usage_ledger import CardPart, ProcessHolding, ProcessKey, UsageLedger

OWNERS = [CgroupOwner("uid-a", "1"), CgroupOwner("uid-a", "2"), CgroupOwner("uid-b", "3")]
PARTS: list[CardPart] = [("GPU-0", 0), ("GPU-0", 7), ("GPU-1", 1)]
"""One card by two names, and another one."""
PROCESSES = [ProcessKey(pid, 10 * pid) for pid in range(1, 5)]
owners = st.sampled_from(OWNERS)
parts = st.sampled_from(PARTS)
processes = st.sampled_from(PROCESSES)
sizes = st.integers(0, 12)
limits = st.integers(0, 20)


class UsageLedgerMachine(RuleBasedStateMachine):
    """What every process last held, as far as it was granted; and what a file would contain."""

    def __init__(self) -> None:
        super().__init__()
        self.noted: dict[tuple[ProcessKey, str], tuple[CgroupOwner, int]] = {}
        self.has_room = True
        self.ledger = UsageLedger(self.note)
        self.owner: dict[ProcessKey, CgroupOwner] = {}
        self.held: dict[tuple[ProcessKey, CardPart], int] = {}
        self.peak: dict[tuple[CgroupOwner, str], int] = {}
        self.refused: dict[tuple[CgroupOwner, str], int] = {}

    def note(self, process: ProcessKey, owner: CgroupOwner, uuid: str, held_bytes: int) -> bool:
        key = process, uuid
        if held_bytes and key not in self.noted and not self.has_room:
            return False
        self.noted.pop(key, None)
        if held_bytes:
            self.noted[key] = owner, held_bytes
        return True

    def used(self, owner: CgroupOwner, uuid: str) -> int:
        return sum(
            held for (process, part), held in self.held.items() if self.owner[process] == owner and part[0] == uuid
        )

    def saw(self) -> None:
        for owner in OWNERS:
            for uuid in ("GPU-0", "GPU-1"):
                if self.used(owner, uuid):
                    self.peak[owner, uuid] = max(self.peak.get((owner, uuid), 0), self.used(owner, uuid))

    @rule(process=processes, owner=owners, said=st.dictionaries(parts, sizes))
    def hello(self, process: ProcessKey, owner: CgroupOwner, said: dict[CardPart, int]) -> None:
        """Everything at once; in between no more than the larger of before and after is held."""
        self.ledger.set_holdings(process, owner, dict.fromkeys(said, 0))
        self.held = {key: held for key, held in self.held.items() if key[0] != process}
        self.owner[process] = owner
        self.ledger.set_holdings(process, owner, said)
        self.held |= {(process, part): held for part, held in said.items() if held}
        self.saw()

    @rule(process=processes, part=parts, wanted=sizes, limit=limits)
    def hold(self, process: ProcessKey, part: CardPart, wanted: int, limit: int) -> None:
        if process not in self.owner:
            return
        owner, before = self.owner[process], self.held.get((process, part), 0)
        fits = wanted <= before or self.used(owner, part[0]) + wanted - before <= limit
        can_be_kept = self.has_room or (process, part[0]) in self.noted
        said = self.ledger.try_charge(process, part, wanted, limit_bytes=limit)
        assert said == (wanted <= before or (fits and can_be_kept))
        if said:
            self.held[process, part] = wanted
            self.saw()
        else:
            self.refused[owner, part[0]] = self.refused.get((owner, part[0]), 0) + 1

    @rule(process=processes, part=parts, left=sizes)
    def uncharge_part(self, process: ProcessKey, part: CardPart, left: int) -> None:
        if process not in self.owner:
            return
        self.ledger.uncharge(process, part, left)
        self.held[process, part] = min(left, self.held.get((process, part), 0))

    @rule(process=processes)
    def end(self, process: ProcessKey) -> None:
        self.ledger.remove_process(process)
        self.held = {key: held for key, held in self.held.items() if key[0] != process}
        self.owner.pop(process, None)

    @rule(has_room=st.booleans())
    def file_system(self, has_room: bool) -> None:  # noqa: FBT001 - a rule's argument
        self.has_room = has_room

    @invariant()
    def every_sum_is_right(self) -> None:
        for owner in OWNERS:
            for uuid in ("GPU-0", "GPU-1"):
                assert self.ledger.get_used_bytes(owner, uuid) == self.used(owner, uuid)
        tallies = {
            key: (tally.used_bytes, tally.peak_bytes, tally.refused)
            for key, tally in self.ledger.list_usage_totals().items()
        }
        keys = {*self.peak, *self.refused}
        assert tallies == {key: (self.used(*key), self.peak.get(key, 0), self.refused.get(key, 0)) for key in keys}

    @invariant()
    def the_file_says_no_more_than_is_held(self) -> None:
        """And the same, as long as it had room."""
        held: dict[tuple[ProcessKey, str], int] = {}
        for (process, part), size in self.held.items():
            if size:
                held[process, part[0]] = held.get((process, part[0]), 0) + size
        assert {key: size for key, (_, size) in self.noted.items()}.items() <= held.items()
        assert {
            (row.process, row.uuid): row.held_bytes for row in self.ledger.list_holdings() if row.held_bytes
        } == held


UsageLedgerMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
TestBooks = UsageLedgerMachine.TestCase


def a_ledger() -> UsageLedger:
    return UsageLedger(lambda *_: True)


def test_a_pod_that_is_gone_is_forgotten_with_its_last_process() -> None:
    ledger, (process, other, *_), owner = a_ledger(), PROCESSES, OWNERS[0]
    for each in (process, other):
        ledger.set_holdings(each, owner, {PARTS[0]: 3})
    ledger.forget_pod("uid-a")
    ledger.remove_process(process)
    assert ledger.list_usage_totals() == {(owner, "GPU-0"): UsageTotals(3, 6, 0)}
    ledger.remove_process(other)
    assert ledger.list_usage_totals() == {}


def test_a_process_that_was_moved_to_another_container_holds_nothing_in_the_first() -> None:
    ledger, (process, *_) = a_ledger(), PROCESSES
    ledger.set_holdings(process, OWNERS[0], {PARTS[0]: 3})
    ledger.set_holdings(process, OWNERS[1], {PARTS[0]: 3})
    assert ledger.get_used_bytes(OWNERS[0], "GPU-0") == 0
    assert list(ledger.list_holdings()) == [ProcessHolding(process, OWNERS[1], "GPU-0", 3, 0)]
