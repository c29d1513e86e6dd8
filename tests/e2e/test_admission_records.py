"""Records: only the extender writes, changes or removes them, by any API path; everything else stays free."""

from __future__ import annotations

from collections.abc import Iterator
from http import HTTPStatus

import pytest

from tests.support.admission.attacks import (
    ALLOCATION,
    Attack,
    added_by,
    added_once_bound_by,
    bound_with,
    bound_with_label,
    changed_by,
    created_with,
    extender_writes_by,
    relabelled_by,
    removed_by,
)
from tests.support.admission.bench import AdmissionBench
from tests.support.admission.pods import (
    FROZEN_LABELS,
    GPUSHARE_V3,
    PROTECTED,
    RECORDS,
    admission_container,
    admission_pod,
)
from tests.support.admission.policies import SHIPPED, with_variable, with_weakened_policies

COUNT, PLACEMENT = FROZEN_LABELS

FORGERIES: dict[str, Attack] = {
    **{f"created with {key}": created_with(key) for key in PROTECTED},
    **{f"bound with {key}": bound_with(key) for key in PROTECTED},
    **{f"bound (legacy) with {key}": bound_with(key, legacy=True) for key in PROTECTED},
    **{
        f"{key} {verb} by {resource}": attack(resource, key)
        for key in PROTECTED
        for resource in ("pods", "pods/status")
        for verb, attack in {"added": added_by, "changed": changed_by, "removed": removed_by}.items()
    },
    **{
        f"{GPUSHARE_V3} added by {resource} once bound without a record": added_once_bound_by(resource, GPUSHARE_V3)
        for resource in ("pods", "pods/status")
    },
}

RELABELLINGS: dict[str, Attack] = {
    **{
        f"{label} {verb} by {resource}": relabelled_by(resource, label, value, was=was)
        for label in FROZEN_LABELS
        for resource in ("pods", "pods/status")
        for verb, value, was in (("added", "2", None), ("changed", "2", "1"), ("removed", None, "2"))
    },
    **{
        f"{label} by {who}'s Binding": bound_with_label(label, by_extender=by_extender)
        for label in FROZEN_LABELS
        for who, by_extender in {"the tenant": False, "the extender": True}.items()
    },
    **{f"{label} by a legacy Binding": bound_with_label(label, legacy=True) for label in FROZEN_LABELS},
}


@pytest.fixture
def bench(tenant: AdmissionBench) -> Iterator[AdmissionBench]:
    with tenant.with_node():
        yield tenant


def test_record_cannot_be_forged_through_any_of_the_four_write_paths(bench: AdmissionBench) -> None:
    """One namespace serves all of them: each attack makes its own pod."""
    assert [what for what, attack in FORGERIES.items() if attack(bench)] == []


def test_the_two_request_labels_cannot_be_changed(bench: AdmissionBench) -> None:
    """Not even by the extender's own Binding: they are the user's request."""
    assert [what for what, attack in RELABELLINGS.items() if attack(bench)] == []
    bench.take_expected_refusals()


def test_pod_may_be_created_with_the_two_request_labels(bench: AdmissionBench) -> None:
    labels = {COUNT: "2", PLACEMENT: "require-whole-device"}
    assert bench.labels(bench.create_pod(admission_pod(labels=labels))) == labels


def test_extender_writes_records_through_its_binding(bench: AdmissionBench) -> None:
    """Records and node arrive together."""
    bound = bench.read_pod(bench.create_bound_pod())
    assert bound["spec"]["nodeName"] == bench.node
    assert bound["metadata"]["annotations"] == RECORDS


def test_extender_may_write_records_through_a_legacy_binding(bench: AdmissionBench) -> None:
    name = bench.create_pod()
    assert bench.bind(name, annotations=RECORDS, token=bench.extender, legacy=True)[0] == HTTPStatus.CREATED
    assert bench.annotations(name) == RECORDS


@pytest.mark.parametrize("resource", ["pods", "pods/status"])
def test_even_the_extender_cannot_rewrite_a_record(bench: AdmissionBench, resource: str) -> None:
    """A Binding writes it in one step with the node; any other write would be a second truth."""
    assert not extender_writes_by(resource)(bench)
    bench.take_expected_refusals()


def test_administrator_cannot_write_a_record_either(bench: AdmissionBench) -> None:
    """Identity decides, not rights: a hand-made record is as wrong as a forged one."""
    status, answer = bench.cluster.request("POST", bench.pods, admission_pod(annotations={ALLOCATION: "{}"}))
    assert status == HTTPStatus.FORBIDDEN, answer


def test_the_refusal_names_the_annotation_and_the_fix(bench: AdmissionBench) -> None:
    status, answer = bench.post_pod(admission_pod(annotations={ALLOCATION: "{}"}))
    assert status == HTTPStatus.FORBIDDEN
    assert f"metadata.annotations: '{ALLOCATION}'" in answer["message"]
    assert "take it out of the pod, or of the template" in answer["message"]
    status, answer = bench.patch(
        bench.create_bound_pod(), {"metadata": {"annotations": {"ALIYUN_COM_GPU_MEM_IDX": "7"}}}
    )
    assert status == HTTPStatus.FORBIDDEN
    assert "'ALIYUN_COM_GPU_MEM_IDX'" in answer["message"]
    assert "delete the pod and create it again" in answer["message"]


def test_a_record_on_a_pod_of_another_scheduler_is_refused(bench: AdmissionBench) -> None:
    """No scheduler name, label or missing request is a way around."""
    plain = admission_pod(
        admission_container(), annotations={ALLOCATION: RECORDS[ALLOCATION]}, schedulerName="someone-else"
    )
    assert bench.post_pod(plain)[0] == HTTPStatus.FORBIDDEN


def test_other_fields_of_a_pod_with_records_stay_writable(bench: AdmissionBench) -> None:
    """What users, controllers and kubelet do to running pods."""
    name = bench.create_bound_pod()
    free = {
        "a label": ("", {"metadata": {"labels": {"team": "vision"}}}),
        "an annotation": ("", {"metadata": {"annotations": {"note": "seen"}}}),
        "our own wish": ("", {"metadata": {"annotations": {"vrampack.dev/policy": "spread"}}}),
        "a finalizer": ("", {"metadata": {"finalizers": ["example.com/later"]}}),
        "a condition": ("/status", {"status": {"conditions": [{"type": "Ready", "status": "False"}]}}),
        "the phase": ("/status", {"status": {"phase": "Running", "podIP": "10.0.0.7"}}),
        "a kick": ("/status", {"metadata": {"annotations": {"vrampack.dev/retry": "1-2"}}}),
        "no finalizer": ("", {"metadata": {"finalizers": None}}),
    }
    for what, (subresource, body) in free.items():
        status, answer = bench.patch(name, body, subresource=subresource)
        assert status == HTTPStatus.OK, f"{what}: {answer}"
    assert RECORDS.items() <= bench.annotations(name).items()


def test_pod_can_be_replaced_by_put_with_its_records_unchanged(bench: AdmissionBench) -> None:
    """A PUT that carries the records unchanged changes nothing about them."""
    name = bench.create_bound_pod()
    read = bench.read_pod(name)
    read["metadata"]["labels"] = {"team": "vision"}
    status, answer = bench.cluster.request("PUT", f"{bench.pods}/{name}", read, token=bench.tenant)
    assert status == HTTPStatus.OK, answer


def test_other_keys_of_the_gpushare_domain_are_not_protected(bench: AdmissionBench) -> None:
    """A name that merely begins alike is read by no program, so it stays free."""
    free = {"gpushare.alibabacloud.com/note": "seen", f"{GPUSHARE_V3}-note": "seen"}
    assert bench.annotations(bench.create_pod(admission_pod(annotations=free))) == free


def test_a_pod_with_thousands_of_annotations_is_annotated_as_any_other(bench: AdmissionBench) -> None:
    """The API server stops an expression that costs too much; only what changed is compared with the pattern."""
    many = {f"example.com/annotation-name-{index:05}": "" for index in range(5000)}
    name = bench.create_pod(admission_pod(annotations=many))
    status, answer = bench.patch(name, {"metadata": {"annotations": {"note": "seen"}}})
    assert status == HTTPStatus.OK, answer
    status, _ = bench.patch(name, {"metadata": {"annotations": {ALLOCATION: "forged"}}})
    assert status == HTTPStatus.FORBIDDEN


def test_ephemeral_container_request_cannot_change_records(bench: AdmissionBench) -> None:
    """The request is accepted; its annotations are ignored."""
    name = bench.create_bound_pod()
    body = {
        "metadata": {"annotations": {ALLOCATION: "forged", "ALIYUN_COM_GPU_MEM_IDX": None}},
        "spec": {"ephemeralContainers": [admission_container("debugger")]},
    }
    status, answer = bench.patch(name, body, subresource="/ephemeralcontainers")
    assert status == HTTPStatus.OK, answer
    assert [container["name"] for container in bench.read_pod(name)["spec"]["ephemeralContainers"]] == ["debugger"]
    assert bench.annotations(name) == RECORDS


def test_resize_cannot_change_records_or_gpu_memory(bench: AdmissionBench) -> None:
    name = bench.create_pod(
        admission_pod({**admission_container(), "resources": {"limits": {"aliyun.com/gpu-mem": "4", "cpu": "1"}}})
    )
    assert bench.bind(name, annotations=RECORDS, token=bench.extender)[0] == HTTPStatus.CREATED

    def resize(limits: dict[str, str]) -> int:
        resized = {"name": "main", "resources": {"limits": limits, "requests": limits}}
        body = {"metadata": {"annotations": {ALLOCATION: "forged"}}, "spec": {"containers": [resized]}}
        path = f"{bench.pods}/{name}/resize"
        strategic = "application/strategic-merge-patch+json"
        return bench.cluster.request("PATCH", path, body, token=bench.tenant, content_type=strategic)[0]

    assert resize({"aliyun.com/gpu-mem": "4", "cpu": "2"}) == HTTPStatus.OK
    assert bench.read_pod(name)["spec"]["containers"][0]["resources"]["limits"]["cpu"] == "2"
    assert resize({"aliyun.com/gpu-mem": "15", "cpu": "2"}) == HTTPStatus.UNPROCESSABLE_ENTITY
    assert bench.annotations(name) == RECORDS


def test_a_template_with_a_record_creates_no_pod_and_reports_why(bench: AdmissionBench) -> None:
    """A pod copied into a Deployment brings its old records along; the ReplicaSet reports it."""
    deployments = f"/apis/apps/v1/namespaces/{bench.namespace}/deployments"
    template = admission_pod(annotations={ALLOCATION: RECORDS[ALLOCATION]}, labels={"app": "copied"})
    body = {
        "metadata": {"name": "copied"},
        "spec": {
            "selector": {"matchLabels": {"app": "copied"}},
            "template": {"metadata": template["metadata"], "spec": template["spec"]},
        },
    }
    bench.cluster.request_ok("POST", deployments, body)

    def is_reported() -> bool:
        conditions = bench.cluster.request_ok("GET", f"{deployments}/copied").get("status", {}).get("conditions", [])
        return any("take it out of the pod, or of the template" in condition["message"] for condition in conditions)

    bench.cluster.wait_until(is_reported, what="the Deployment says which annotation is in the way")
    assert bench.cluster.request_ok("GET", bench.pods)["items"] == []


def test_configured_legacy_plugin_may_report_a_start_and_nothing_else(bench: AdmissionBench) -> None:
    """The tenant's account acts as the plugin; it may write two annotations, on a pod that is there."""
    account = f"system:serviceaccount:{bench.namespace}:tenant"
    named = with_variable("legacyPlugin", f"'{account}'")
    start = {"ALIYUN_COM_GPU_MEM_ASSIGNED": "true", "ALIYUN_COM_GPU_MEM_ASSUME_TIME": "1700000000000000009"}
    name = bench.create_bound_pod()
    with with_weakened_policies(bench.cluster, SHIPPED, {"vrampack-records": named}):
        bench.cluster.wait_until(
            lambda: bench.patch(name, {"metadata": {"annotations": start}})[0] == HTTPStatus.OK,
            what="the named account is known",
        )
        assert start.items() <= bench.annotations(name).items()
        others = [key for key in PROTECTED if key not in start]
        assert [key for key in others if changed_by("pods", key)(bench) or removed_by("pods", key)(bench)] == []
        assert not created_with("ALIYUN_COM_GPU_MEM_ASSIGNED")(bench)
        assert not bound_with("ALIYUN_COM_GPU_MEM_ASSIGNED")(bench)
    bench.cluster.wait_until(
        lambda: not changed_by("pods", "ALIYUN_COM_GPU_MEM_ASSIGNED")(bench), what="the account is unknown again"
    )
