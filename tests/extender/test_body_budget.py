"""Which body is dropped when a listener holds too many bytes, and that bodies that are gone are not counted."""

from __future__ import annotations

from extender.http.body_budget import BodyBudget


class ListedBody:
    """A body that records what was done to it."""

    is_refused = False

    def refuse_body(self) -> None:
        self.is_refused = True


def refused(*bodies: ListedBody) -> list[bool]:
    return [each.is_refused for each in bodies]


def test_the_body_arriving_for_the_longest_time_is_refused_to_make_room() -> None:
    budget = BodyBudget(100)
    first, second, third = bodies = [ListedBody() for _ in range(3)]
    budget.charge_bytes(first, 10)
    budget.charge_bytes(second, 60)
    budget.charge_bytes(first, 30)
    assert refused(*bodies) == [False, False, False]
    budget.charge_bytes(third, 1)
    assert (refused(*bodies), budget.held_bytes) == ([True, False, False], 61)
    budget.charge_bytes(third, 99)
    assert (refused(*bodies), budget.held_bytes) == ([True, True, False], 100)


def test_a_whole_body_counts_until_it_is_answered_and_is_not_refused() -> None:
    budget = BodyBudget(100)
    whole, new, later = bodies = [ListedBody() for _ in range(3)]
    budget.charge_bytes(whole, 80)
    budget.note_complete(whole)
    budget.charge_bytes(new, 30)
    assert (refused(*bodies), budget.held_bytes) == ([False, True, False], 80)
    budget.uncharge_body(whole)
    budget.uncharge_body(whole)
    budget.charge_bytes(later, 100)
    assert (refused(*bodies), budget.held_bytes) == ([False, True, False], 100)
