"""The webhook form on an API server that has no policies that change pods: an older one, or ours emulating 1.33.

It emulates which kinds are served and which words of CEL are accepted; the code is the pinned version's.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.e2e import webhook
from tests.support.admission import refused_requests
from tests.support.admission.bench import AdmissionBench, open_admission_bench
from tests.support.admission.environment_cases import HOSTILE
from tests.support.admission.pods import (
    admission_container,
    admission_pod,
    container_of,
    expected_environment,
    has_exact_environment,
)
from tests.support.control_plane.binaries import choose_older_version
from tests.support.control_plane.cluster import ControlPlane

pytestmark = pytest.mark.smoke
NEED_A_MUTATING_POLICY = ("a sidecar that sees everything", "an ephemeral container stripped by another plugin")
"""The other plugin of these attacks is one."""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """Instead of the suite's own: older, and with the webhook form from the start."""
    files, mounted = (tmp_path_factory.mktemp(name) for name in ("older", "mounted"))
    with (
        ControlPlane.start(files, emulated_version=choose_older_version()) as running,
        webhook.with_applied_objects(running, mounted),
    ):
        yield running


@pytest.fixture
def bench(cluster: ControlPlane) -> Iterator[AdmissionBench]:
    with open_admission_bench(cluster) as made:
        yield made


def test_the_older_api_server_has_no_mutating_policies(cluster: ControlPlane) -> None:
    served = cluster.request_ok("GET", "/apis/admissionregistration.k8s.io/v1")["resources"]
    names = {kind["name"] for kind in served}
    assert "validatingadmissionpolicies" in names
    assert "mutatingadmissionpolicies" not in names


def test_no_hostile_environment_gets_through(bench: AdmissionBench) -> None:
    attacks = {what: attack for what, attack in HOSTILE.items() if what not in NEED_A_MUTATING_POLICY}
    assert len(attacks) == len(HOSTILE) - 2
    assert [what for what, attack in attacks.items() if attack(bench)] == []


def test_a_pod_gets_its_environment_and_scheduler(bench: AdmissionBench) -> None:
    made = bench.read_pod(
        bench.create_pod(admission_pod(admission_container(units=4), init=[admission_container("init")]))
    )
    assert has_exact_environment(made)
    assert sorted(container_of(made, "main")["env"], key=repr) == sorted(expected_environment("main", 4), key=repr)
    assert made["spec"]["schedulerName"] == "vrampack"


def test_a_request_that_can_never_fit_is_refused_with_field_and_fix(bench: AdmissionBench) -> None:
    for pod, field, cure in refused_requests.REFUSED.values():
        refused_requests.check_refusal(bench, pod, field, cure)
