"""The webhook form on a real API server: what it does beside the table of `test_admission_environment`, and without an answer."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from http import HTTPStatus
from http.client import HTTPConnection

import pytest

from tests.e2e.webhook import CONFIGURATION, PORT, WebhookInstallForm, with_installed_form
from tests.support.admission.bench import AdmissionBench, open_admission_bench
from tests.support.admission.pods import (
    VOID,
    admission_container,
    admission_pod,
    env_entry,
    has_exact_environment,
    pod_with_asking_init_container,
)
from tests.support.control_plane.access_denials import NAMESPACE
from tests.support.control_plane.cluster import ControlPlane, Json
from tests.support.manifests import MANIFESTS
from tests.support.processes import LOOPBACK
from tests.support.verb_listener import open_connection
from vrampack.cli.certificates.key_pairs import ServingCertificate, renew_if_due

NAME = "vrampack-admission.vrampack-system.svc"
OTHERS = {
    "nothing": admission_pod(admission_container(env=[env_entry("NVIDIA_VISIBLE_DEVICES")])),
    "zero": admission_pod(admission_container(units=0), init=[admission_container("init", units="0")]),
    "whole cards": admission_pod({**admission_container(), "resources": {"limits": {"nvidia.com/gpu": "1"}}}),
}
"""Pods that do not ask for GPU memory."""


@pytest.fixture(scope="module")
def webhook(cluster: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[WebhookInstallForm]:
    with with_installed_form(cluster, tmp_path_factory.mktemp("mounted")) as made:
        yield made


@pytest.fixture
def bench(cluster: ControlPlane, webhook: WebhookInstallForm) -> Iterator[AdmissionBench]:
    with open_admission_bench(cluster) as made:
        yield made


def read_served_certificate(authorities: bytes) -> str:
    """The certificate of a new connection, checked as strictly as Python 3.13 does."""
    context = ssl.create_default_context(cadata=authorities.decode())
    context.verify_flags |= ssl.VERIFY_X509_STRICT
    with closing(context.wrap_socket(open_connection((LOOPBACK, PORT)), server_hostname=NAME)) as client:
        return ssl.DER_cert_to_PEM_cert(client.getpeercert(binary_form=True) or b"")


def sample(webhook: WebhookInstallForm, series: str) -> float:
    """One series of the webhook's metrics page; 0 when it is not there."""
    address = webhook.health_url.removeprefix("http://")
    with closing(HTTPConnection(address, timeout=10)) as client:
        client.request("GET", "/metrics")
        lines = client.getresponse().read().decode().splitlines()
    return sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith(f"{series} "))


@pytest.mark.parametrize("given", [{}, {"schedulerName": "default-scheduler"}, {"schedulerName": ""}], ids=str)
def test_a_pod_that_chose_no_scheduler_gets_ours(bench: AdmissionBench, given: Json) -> None:
    for pod in (
        admission_pod(**given),
        {**pod_with_asking_init_container(), "spec": {**pod_with_asking_init_container()["spec"], **given}},
    ):
        made = bench.read_pod(bench.create_pod(pod))
        assert made["spec"]["schedulerName"] == "vrampack"
        assert has_exact_environment(made)


def test_api_server_sends_only_gpu_memory_pods_to_the_webhook(
    bench: AdmissionBench, webhook: WebhookInstallForm
) -> None:
    """The API server's own match conditions: a pod that does not ask for units never waits for the webhook."""
    count = "vrampack_admission_request_duration_seconds_count"
    before = {result: sample(webhook, f'{count}{{result="{result}"}}') for result in ("changed", "unchanged")}
    for what, pod in OTHERS.items():
        name = bench.create_pod(pod)
        status, answer = bench.add_debug_container(name, admission_container("debugger"))
        assert status == HTTPStatus.OK, (what, answer)
    assert {result: sample(webhook, f'{count}{{result="{result}"}}') for result in before} == before
    bench.create_pod()
    assert sample(webhook, f'{count}{{result="changed"}}') > before["changed"]


def test_only_gpu_memory_pods_are_refused_while_no_webhook_answers(
    bench: AdmissionBench, webhook: WebhookInstallForm
) -> None:
    running = bench.create_bound_pod()
    webhook.process.kill()
    try:
        status, answer = bench.post_pod(admission_pod())
        assert status == HTTPStatus.INTERNAL_SERVER_ERROR
        assert 'failed calling webhook "environment.vrampack.dev"' in answer["message"]
        status, answer = bench.add_debug_container(running, admission_container("debugger"))
        assert status == HTTPStatus.INTERNAL_SERVER_ERROR
        assert bench.add_ephemeral_container(running) == []
        for pod in OTHERS.values():
            bench.add_debug_container(bench.create_pod(pod), admission_container("debugger"))
        ours = admission_pod(admission_container(units=4))
        path = f"/api/v1/namespaces/{NAMESPACE}/pods?dryRun=All"
        status, answer = bench.cluster.request("POST", path, ours)
        assert "failed calling webhook" not in answer["message"], "our own namespace is never sent"
        status, answer = bench.patch(running, {"metadata": {"labels": {"a": "b"}}})
        assert status == HTTPStatus.OK, answer
    finally:
        webhook.start()
    assert bench.add_debug_container(running, admission_container("debugger"))[0] == HTTPStatus.OK
    assert [made["env"] for made in bench.add_ephemeral_container(running)] == [VOID]


def test_renewed_certificate_is_served_without_a_restart_and_stays_trusted(
    bench: AdmissionBench, webhook: WebhookInstallForm
) -> None:
    before, pid = webhook.secret(), webhook.process.pid
    trusted = bench.cluster.request_ok("GET", CONFIGURATION)["webhooks"][0]["clientConfig"]["caBundle"]
    assert read_served_certificate(before["ca.crt"]) == before["tls.crt"].decode()
    assert "nothing to renew" in webhook.renew()
    assert webhook.secret() == before
    assert "certificate made" in webhook.renew("--days", "300")  # of which less than a third is left
    after = webhook.secret()
    assert after["ca.crt"] == before["ca.crt"]
    assert after["tls.crt"] != before["tls.crt"]
    assert bench.cluster.request_ok("GET", CONFIGURATION)["webhooks"][0]["clientConfig"]["caBundle"] == trusted
    webhook.mount()
    bench.cluster.wait_until(
        lambda: read_served_certificate(before["ca.crt"]) == after["tls.crt"].decode(), 30, what="the new one is shown"
    )
    assert has_exact_environment(bench.read_pod(bench.create_pod()))
    assert (webhook.process.pid, webhook.process.is_running) == (pid, True)


def test_an_expired_certificate_is_refused_and_reported(bench: AdmissionBench, webhook: WebhookInstallForm) -> None:
    """The API server tells the pod's creator, the webhook its log and metrics. The next good certificate ends it."""
    good = webhook.secret()
    now = datetime.now(UTC)
    kept = ServingCertificate(good["ca.crt"], good["ca.key"], good["tls.crt"], good["tls.key"])
    ended = renew_if_due(kept, [NAME], timedelta(days=1), now - timedelta(days=2))
    webhook.mount({"tls.crt": ended.certificate, "tls.key": ended.key})
    webhook.process.kill()  # an open connection is not checked again
    webhook.start(wait=False)
    try:
        status, answer = bench.post_pod(admission_pod())
        assert status == HTTPStatus.INTERNAL_SERVER_ERROR
        assert "certificate has expired" in answer["message"]
        expiry = 'vrampack_certificate_expiry_seconds{listener="admission"}'
        assert sample(webhook, expiry) == int((now - timedelta(days=1)).timestamp())
        bench.cluster.wait_until(lambda: "certificate expired listener=admission" in webhook.process.log_tail())
    finally:
        webhook.mount(good)
    bench.cluster.wait_until(
        lambda: bench.post_pod(admission_pod())[0] == HTTPStatus.CREATED, 20, what="the good one is shown"
    )


def test_next_run_restores_trust_in_a_configuration_that_was_reapplied(webhook: WebhookInstallForm) -> None:
    """The authority is in the Secret, so nothing has to be regenerated."""
    cluster, before = webhook.cluster, webhook.secret()
    lost = cluster.request_ok("GET", CONFIGURATION)["webhooks"][0]["clientConfig"]["caBundle"]
    patch = [{"op": "remove", "path": "/webhooks/0/clientConfig/caBundle"}]
    cluster.request_ok("PATCH", CONFIGURATION, patch, content_type="application/json-patch+json")
    assert "nothing to renew" in webhook.renew()
    assert cluster.request_ok("GET", CONFIGURATION)["webhooks"][0]["clientConfig"]["caBundle"] == lost
    assert webhook.secret() == before
    cluster.wait_until(cluster.admits_as_shipped, what="the webhook answers")


@pytest.mark.parametrize("shape", ["second-scheduler", "kubeadm"])
def test_api_server_accepts_the_whole_shape_without_a_warning(webhook: WebhookInstallForm, shape: str) -> None:
    """Includes the Jobs and pods that no test runs, sent as an installer sends them."""
    done = webhook.cluster.kubectl("apply", "--dry-run=server", "-k", MANIFESTS / "webhook" / shape)
    warnings = [line for line in done.stderr.splitlines() if line.startswith("Warning")]
    # In a dry run the namespace stays the second scheduler's, which has no pods on the network of hosts.
    assert [line for line in warnings if shape == "second-scheduler" or "hostNetwork=true" not in line] == []


def test_the_certificate_account_has_only_the_rights_it_needs(webhook: WebhookInstallForm) -> None:
    """Asked of the API server itself."""
    user = webhook.cluster.kubeconfig(NAMESPACE, "vrampack-certificates")

    def may(verb: str, what: str, *flags: str) -> bool:
        return (
            webhook.cluster.kubectl("auth", "can-i", verb, what, *flags, check=False, kubeconfig=user).returncode == 0
        )

    here = ("-n", NAMESPACE)
    kind = "mutatingwebhookconfigurations.admissionregistration.k8s.io"
    assert may("patch", f"{kind}/vrampack-environment")
    assert all(may(verb, "secrets/vrampack-admission", *here) for verb in ("get", "update"))
    assert may("create", "secrets", *here)
    assert not any(may(verb, f"{kind}/another") for verb in ("get", "patch", "delete"))
    assert not any(may(verb, "secrets/another", *here) for verb in ("get", "update", "delete"))
    assert not any(may(verb, "secrets", "-n", "default") for verb in ("create", "get", "list"))
    assert not any(may(verb, "secrets", *here) for verb in ("list", "watch", "delete"))
    assert not may("get", "pods", "-A")
