"""How much of a node the typical requests cannot use: the fragmentation measure of FGD.

For each typical request, count the free units of the cards that it cannot use: all of them if the model, the CPU or the
number of cards is lacking. The fragment is their average over the requests, weighted by share, in cards. The definition is
that of `hkust-adsl/kubernetes-scheduler-simulator`; see Weng et al., "Beware of Fragmentation", USENIX ATC 2023.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Sequence

from policies.mix.request_mix import MixedRequest
from vrampack.cards.host_room import HostResources

ALL_HOSTS = 1 << 62
"""The CPU of an unknown host: enough for every request."""


class _CardTable:
    """For one model and one CPU step: the share of requests that cannot use a card, by its free units."""

    def __init__(self, typical: Iterable[tuple[MixedRequest, float]], model: str, cpu_milli: int) -> None:
        self.never = 0.0
        """The share of requests that can use no card here."""
        one: defaultdict[int, float] = defaultdict(float)
        several: defaultdict[int, list[tuple[int, float]]] = defaultdict(list)
        for request, share in typical:
            cards = request.cards
            if (
                cards is None
                or _needs_more_cpu(request.host, cpu_milli)
                or (cards.models and model not in cards.models)
            ):
                self.never += share
            elif cards.count == 1:
                one[cards.units] += share
            else:
                several[cards.units].append((cards.count, share))
        self.several = tuple((units, tuple(wanted)) for units, wanted in sorted(several.items()))
        """Requests for several cards: units of each card, number of cards, share."""
        self._sizes = sorted(one)
        self._shares = [self.never + sum(one[size] for size in self._sizes[at:]) for at in range(len(self._sizes) + 1)]
        self._by_free_units: dict[int, float] = {}

    def get_unusable_units(self, free_units: int) -> float:
        """The unusable units of one card, averaged over requests, without those for several cards."""
        known = self._by_free_units.get(free_units)
        if known is None:
            known = free_units * self._shares[bisect_right(self._sizes, free_units)]
            self._by_free_units[free_units] = known
        return known


def _needs_more_cpu(host: HostResources | None, cpu_milli: int) -> bool:
    return host is not None and host.cpu_milli > cpu_milli


class FragmentTables:
    """Measures nodes against one set of typical requests. Tables are built when a model and CPU step is first asked for."""

    def __init__(self, typical: Sequence[tuple[MixedRequest, float]], mean_card_units: float) -> None:
        self._typical = typical
        self._mean_card_units = mean_card_units
        self._cpu_steps = sorted({request.host.cpu_milli for request, _ in typical if request.host is not None})
        self._tables: dict[tuple[str, int], _CardTable] = {}

    def measure_node(self, model: str, free_units: Iterable[int], cpu_milli: int = ALL_HOSTS) -> float:
        """The fragment, in mean cards, of cards of one model with these free units."""
        free_units = sorted(free_units)
        table = self._get_table(model, cpu_milli)
        unusable = sum(map(table.get_unusable_units, free_units))
        for units, wanted in table.several:
            first = next((at for at, free in enumerate(free_units) if free >= units), len(free_units))
            small, large = sum(free_units[:first]), sum(free_units[first:])
            count = len(free_units) - first
            for cards, share in wanted:
                unusable += share * (small + (large if count < cards else 0))
        return unusable / self._mean_card_units

    def _get_table(self, model: str, cpu_milli: int) -> _CardTable:
        step = bisect_right(self._cpu_steps, cpu_milli)
        table = self._tables.get((model, step))
        if table is None:
            cpu = self._cpu_steps[step - 1] if step else -1
            table = self._tables[model, step] = _CardTable(self._typical, model, cpu)
        return table
