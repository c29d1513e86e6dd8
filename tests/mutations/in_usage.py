"""Breaks of measured use: whose figures are trusted, and how often they are written."""

from __future__ import annotations

from collections.abc import Mapping

from tests.mutations.breaks import Mutation

USAGE: Mapping[str, Mutation] = {
    "any Lease speaks for the node that it names as its holder": Mutation(
        "extender/state/usage_leases.py",
        "return holder if holder and name == name_usage_lease(holder) else None",
        "return holder",
        "tests/extender/test_usage_leases.py::test_a_lease_affects_only_its_own_node",
    ),
    "a list renews the Lease of an agent that is gone": Mutation(
        "extender/state/usage_leases.py",
        "if known is not None and version and known.version == version:",
        "if False:",
        "tests/extender/test_usage_leases.py::test_a_list_with_an_unchanged_lease_renews_nothing",
    ),
    "a Lease is written whenever a figure changed": Mutation(
        "vrampack/agent/cluster/usage_lease.py",
        "await asyncio.sleep(interval * random.uniform(1, MAX_DELAY))  # noqa: S311",
        "await asyncio.sleep(interval / 60)",
        "tests/agent/test_usage_lease.py::test_two_writes_are_at_least_an_interval_apart",
    ),
    "the driver's rubbish is believed": Mutation(
        "vrampack/agent/nvml/utilization.py",
        "is_plausible = sample.pid > 0 and since < sample.timeStamp <= until and 0 <= sample.smUtil <= FULL_PERCENT",
        "is_plausible = True",
        "tests/agent/test_nvml_library.py::test_compute_usage_of_a_card_is_reported_by_process_since_the_last_call",
    ),
    "samples are asked for from after the present": Mutation(
        "vrampack/agent/nvml/utilization.py",
        "since = min(self._read_until[uuid], int(now * _MICROSECONDS))",
        "since = self._read_until[uuid]",
        "tests/agent/test_nvml_library.py::test_a_sample_from_the_future_hides_no_later_one",
    ),
}
