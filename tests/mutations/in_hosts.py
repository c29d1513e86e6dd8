"""Breaks of the agent of hosts without Kubernetes: whose environment is believed, and what is given twice."""

from __future__ import annotations

from collections.abc import Mapping

from tests.mutations.breaks import Mutation

VARIABLES = "tests/agent/limits/test_host_environment.py::test_an_invalid_value_is_refused_with_its_variable"
TENANTS = "tests/agent/limits/test_host_containers.py"
HOST = "tests/agent/limits/test_host_limits.py"

HOSTS: Mapping[str, Mutation] = {
    "a container may have more than a card": Mutation(
        "vrampack/agent/host/environment.py", "if units > card_units:", "if False:", f"{VARIABLES}[more than there is]"
    ),
    "a host's card is given twice": Mutation(
        "vrampack/agent/host/containers.py",
        "if self._may_overcommit or asked <= left or not asked:",
        "if True:",
        f"{TENANTS}::test_card_memory_is_granted_up_to_its_size",
    ),
    "what lies too deep to be looked at has ended": Mutation(
        "vrampack/agent/limits/cgroups.py",
        "return error.errno == errno.ENAMETOOLONG",
        "return False",
        f"{TENANTS}::test_cgroup_too_deep_to_search_counts_as_having_a_process",
    ),
    "a pod's environment is believed on a host": Mutation(
        "vrampack/agent/host/limits.py",
        "_check_is_host_container(question)",
        "pass",
        f"{HOST}::test_a_container_with_an_untrusted_environment_does_not_start",
    ),
    "a host's agent begins with an empty book": Mutation(
        "vrampack/agent/host/agent.py",
        "self._host_containers.restore_running()",
        "pass",
        "tests/agent/test_host_agent.py::test_the_next_agent_keeps_limits_of_running_containers",
    ),
}
