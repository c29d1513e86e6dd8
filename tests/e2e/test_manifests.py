"""What only kubectl and a real API server can say of `manifests/`; the rest is in `tests/manifests`."""

from __future__ import annotations

import os
import re
import shlex
from itertools import product
from pathlib import Path

import pytest
import yaml

from tests.e2e.render import render_manifests
from tests.support.control_plane.cluster import ControlPlane
from tests.support.manifests import MANIFESTS, SHAPES, Json, find_pod_template, find_workload, read_kustomization
from tests.support.processes import REPOSITORY

FOLDERS = (
    "second-scheduler",
    "examples",
    "before-1.36/examples",
    "admission",
    "admission/exact",
    "admission/second-scheduler",
    "admission/optional",
    "admission/void",
    "admission/kubeadm",
)
"""Without the other shape, which wants another namespace than the one that is there; `test_kubeadm.py` applies it."""
OPERATED = {"nvidia.com/gpu.deploy.container-toolkit": "true"}
DRIVER_BY = {
    "agent/runtime-class": {"runtimeClassName": "nvidia"},
    "agent/gpu-operator": {"runtimeClassName": "nvidia", "nodeSelector": OPERATED},
    "agent/gpu-operator/nri": {
        "annotations": {"nvidia.cdi.k8s.io/container.agent": "management.nvidia.com/gpu=all"},
        "nodeSelector": OPERATED,
    },
}
"""What each component adds to the agents' pods, and nothing else."""


@pytest.mark.parametrize("folder", FOLDERS)
def test_every_object_applies_without_a_warning(cluster: ControlPlane, folder: str) -> None:
    """Server side and strict: an unknown field is an error there, a deprecated one a warning."""
    cluster.check_manifests(render_manifests(MANIFESTS / folder))


@pytest.mark.parametrize("shape", SHAPES)
def test_the_documented_patch_puts_the_api_servers_addresses_into_the_policy(tmp_path: Path, shape: str) -> None:
    """As `docs/admission.md` has it, in a user's own kustomization. Enforcing the policy is the network's task."""
    text = (REPOSITORY / "docs" / "admission.md").read_text().partition("**Addresses.**")[2]
    patches = yaml.safe_load(text.partition("```yaml\n")[2].partition("```")[0])
    folder = os.path.relpath(MANIFESTS / "webhook" / shape, tmp_path)
    (tmp_path / "kustomization.yaml").write_text(yaml.safe_dump({"resources": [folder], **patches}))
    made = list(yaml.safe_load_all(render_manifests(tmp_path)))
    (policy,) = [
        item for item in made if (item["kind"], item["metadata"]["name"]) == ("NetworkPolicy", "vrampack-admission")
    ]
    calls, scrapes = policy["spec"]["ingress"]
    assert calls["from"] == [{"ipBlock": {"cidr": f"192.0.2.{last}/32"}} for last in (11, 12)]
    assert calls["ports"] == [{"protocol": "TCP", "port": 12348}]
    assert "namespaceSelector" in scrapes["from"][0]


@pytest.mark.parametrize(("component", "added"), DRIVER_BY.items(), ids=DRIVER_BY)
def test_a_component_gives_the_agent_the_driver_and_no_privilege(
    tmp_path: Path, component: str, added: dict[str, Json]
) -> None:
    shape = [os.path.relpath(MANIFESTS / "second-scheduler", tmp_path)]
    parts = {"resources": shape, "components": [os.path.relpath(MANIFESTS / component, tmp_path)]}
    (tmp_path / "kustomization.yaml").write_text(yaml.safe_dump(parts))
    (made,) = [item for item in yaml.safe_load_all(render_manifests(tmp_path)) if item["kind"] == "DaemonSet"]
    shipped = find_pod_template(find_workload("second-scheduler", "vrampack-agent"))
    for field, value in added.items():
        shipped["metadata" if field == "annotations" else "spec"][field] = value
    assert made["spec"]["template"] == shipped


def test_api_server_accepts_every_install_choice_of_the_manual(cluster: ControlPlane, tmp_path: Path) -> None:
    """The three questions of docs/install.md: what goes under `resources`, alone and with each of the components."""
    questions = _read_section("Three questions")
    named = {MANIFESTS / name for name in re.findall(r"`\.\./vrampack/manifests/([\w./-]+)`", questions)}
    components = sorted(path for path in named if read_kustomization(path)["kind"] == "Component")
    resources = sorted(named - set(components))
    assert [path.relative_to(MANIFESTS).as_posix() for path in (*resources, *components)] == [
        "before-1.36",
        "second-scheduler",
        "webhook/second-scheduler",
        "admission/exact",
        "agent/gpu-operator",
        "agent/runtime-class",
    ]
    exact = MANIFESTS / "admission" / "exact"  # on 1.36; the webhook has it
    pairs = [(MANIFESTS / "second-scheduler", exact), *product(resources, [None, *(set(components) - {exact})])]
    for resource, component in pairs:
        made = {
            kind: [os.path.relpath(path, tmp_path)]
            for kind, path in (("resources", resource), ("components", component))
            if path
        }
        (tmp_path / "kustomization.yaml").write_text(yaml.safe_dump(made))
        cluster.check_manifests(render_manifests(tmp_path))


def test_the_get_commands_of_the_manual_work(cluster: ControlPlane) -> None:
    section = _read_section("What you should see")
    commands = re.findall(r"^kubectl (get .*)$", section, re.MULTILINE)
    assert len(commands) == 3
    for command in commands:
        cluster.kubectl(*shlex.split(command))


def test_documented_upgrade_command_leaves_the_agents_for_later(cluster: ControlPlane) -> None:
    (selector,) = re.findall(
        r"^  kubectl apply -k my-cluster --selector '(.*)'$", _read_section("Upgrade"), re.MULTILINE
    )
    apply = ("apply", "--dry-run=server", "-o", "name", "-k", MANIFESTS / "second-scheduler")
    made, later = (set(cluster.kubectl(*apply, *more).stdout.split()) for more in ((), ("--selector", selector)))
    assert made - later == {"daemonset.apps/vrampack-agent"}


def _read_section(heading: str) -> str:
    return (REPOSITORY / "docs" / "install.md").read_text().partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
