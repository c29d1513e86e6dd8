"""`vrampack support-bundle`: what helps is inside, no secret is, and a part that fails costs no other."""

from __future__ import annotations

import asyncio
import base64
import json
import tarfile
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from typing import Any

import pytest

from tests.cli.simulate.clusters import a_bound_pod, a_card, a_gpu_node, a_pod
from tests.support.manifests import MANIFESTS, load_objects, load_rendered
from tests.support.scripted_cluster import Answer, Object, ScriptedCluster
from vrampack.cli.main import main
from vrampack.cli.support_bundle.access_needs import ACCESS_NEEDS
from vrampack.cli.support_bundle.bundle_file import BundledFile, PartContent, SupportBundle
from vrampack.cli.support_bundle.redaction import REDACTED, redact_text
from vrampack.simulator.kubeconfig import write_kubeconfig

SECRET = "hunter2hunter2"
TOKEN = f"eyJhbGciOiJSUzI1NiJ9.{SECRET}.sig"
OWN = "/api/v1/namespaces/vrampack-system"
ADMISSION = "/apis/admissionregistration.k8s.io"
SAID = "0/1 nodes are available: 1 no card with enough free memory."
CONDITION = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": SAID}
EXTENDER_FILE = """\
# hunter2hunter2 is what the comment says
apiVersion: vrampack.dev/v1
kind: ExtenderConfiguration
unit_mib: 512
"""
SCHEDULER_FILE = f"""\
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
  - schedulerName: vrampack
    pluginConfig: [{{name: X, args: {{password: {SECRET}}}}}]
extenders:
  - urlPrefix: http://me:{SECRET}@127.0.0.1:12345/gpushare-scheduler
    weight: 10
    tlsConfig: {{keyData: {SECRET}}}
"""
BROKEN_FILE = f"apiVersion: vrampack.dev/v1\nkind: AgentConfiguration\ntoken: {SECRET}\n"


def an_own_pod(name: str, container: str, port: int, **status: Any) -> Object:  # noqa: ANN401 - raw JSON
    return {
        "metadata": {"name": name, "namespace": "vrampack-system", "labels": {"app": SECRET}},
        "spec": {
            "nodeName": "gpu-a",
            "containers": [{"name": container, "image": "vrampack:1", "ports": [{"name": "health", "containerPort": port}],
                            "resources": {"limits": {"memory": "1Gi"}, "claims": [{"name": SECRET}]}}],
            "volumes": [{"name": "c", "configMap": {"name": "vrampack-config"}}],
        },
        "status": {"phase": "Running", "containerStatuses": [{"name": container, "restartCount": 1, **status}]},
    }  # fmt: skip


def an_event(name: str, component: str, message: str, **more: Any) -> Object:  # noqa: ANN401 - raw JSON
    subject = {"kind": "Pod", "namespace": "default", "name": name}
    return {
        "metadata": {"name": f"{name}.1"},
        "involvedObject": subject,
        "reason": "R",
        "source": {"component": component},
        "message": message,
        **more,
    }


def build_answers() -> dict[str, Answer]:
    """A small cluster that has everything which a bundle collects."""
    node = a_gpu_node("gpu-a", a_card(0))
    node["status"]["nodeInfo"] = {"kubeletVersion": "v1.36.3", "machineID": SECRET}
    node["status"]["conditions"] = [{"type": "Ready", "status": "True", "reason": "KubeletReady", "message": SECRET}]
    waiting = a_pod("waits", 40)
    waiting["status"] = {"phase": "Pending", "conditions": [CONDITION]}
    policies = [item for item in load_rendered("second-scheduler") if item["kind"] == "ValidatingAdmissionPolicy"]
    webhook = {
        "metadata": {"name": "vrampack-environment"},
        "webhooks": [
            {
                "name": "environment.vrampack.dev",
                "clientConfig": {
                    "caBundle": base64.b64encode(b"a bundle").decode(),
                    "url": f"https://x/{SECRET}",
                    "service": {"name": "vrampack-admission", "namespace": "vrampack-system", "port": 443},
                },
            }
        ],
    }
    return {
        "/version": {"gitVersion": "v1.36.3", "platform": "linux/amd64"},
        "/api/v1/nodes": [node],
        "/api/v1/pods": [a_bound_pod("one", "gpu-a", {0: 8}), waiting],
        "/api/v1/events": [
            an_event("waits", "default-scheduler", SAID, lastTimestamp="2026-01-01T00:00:02Z"),
            an_event("one", "vrampack-agent", f"refused, token={SECRET}", lastTimestamp="2026-01-01T00:00:01Z"),
            an_event("one", "kubelet", f"Error: {SECRET}"),
            {"metadata": {}, "involvedObject": {"kind": "Node", "name": "gpu-a"}, "message": SECRET, "reason": "NodeNotReady"},
        ],
        f"{OWN}/pods": [an_own_pod("extender-1", "extender", 12346), an_own_pod("agent-1", "agent", 12347)],
        "/apis/apps/v1/namespaces/vrampack-system/deployments": [
            {"metadata": {"name": "vrampack-scheduler"}, "status": {"replicas": 2, "conditions": [{"message": SECRET}]}}
        ],
        "/apis/apps/v1/namespaces/vrampack-system/daemonsets": [],
        f"{OWN}/configmaps/vrampack-config": {
            "data": {"extender.yaml": EXTENDER_FILE, "scheduler.yaml": SCHEDULER_FILE, "agent.yaml": BROKEN_FILE, "x": SECRET}
        },
        f"{OWN}/pods/extender-1/log": f"bound pod=default/one\nauthorization: Bearer {SECRET}\n",
        f"{OWN}/pods/agent-1/log": f"refused, {TOKEN}\n",
        f"{OWN}/pods/extender-1:12346/proxy/metrics": "vrampack_cache_synced 1.0\n",
        f"{ADMISSION}/v1beta1/mutatingadmissionpolicies": [],
        f"{ADMISSION}/v1beta1/mutatingadmissionpolicybindings": [],
        f"{ADMISSION}/v1/validatingadmissionpolicies": [*policies, {"metadata": {"name": "other"}, "spec": {"x": SECRET}}],
        f"{ADMISSION}/v1/validatingadmissionpolicybindings": [],
        f"{ADMISSION}/v1/mutatingwebhookconfigurations": [webhook],
    }  # fmt: skip


PLANTED_FIELDS: Mapping[str, Object] = {
    "metadata": {
        "annotations": {"kubectl.kubernetes.io/last-applied-configuration": SECRET, "note": SECRET},
        "managedFields": [{"manager": SECRET}],
        "finalizers": [SECRET],
        "ownerReferences": [{"name": SECRET}],
        "generateName": SECRET,
    },
    "spec": {
        "imagePullSecrets": [{"name": SECRET}],
        "hostAliases": [{"hostnames": [SECRET]}],
        "providerID": SECRET,
        "token": SECRET,
    },
    "containers": {
        "env": [{"name": "TOKEN", "value": SECRET}, {"name": SECRET, "valueFrom": {"secretKeyRef": {"name": SECRET}}}],
        "envFrom": [{"secretRef": {"name": SECRET}}],
        "args": [f"--token={SECRET}"],
        "command": [SECRET],
        "volumeMounts": [{"name": SECRET, "mountPath": SECRET}],
        "livenessProbe": {"httpGet": {"httpHeaders": [{"name": "Authorization", "value": SECRET}]}},
        "lifecycle": {"preStop": {"exec": {"command": [SECRET]}}},
    },
    "volumes": {"secret": {"secretName": SECRET}, "csi": {"volumeAttributes": {"password": SECRET}}, "name": SECRET},
    "status": {"message": SECRET, "addresses": [{"address": SECRET}], "images": [{"names": [SECRET]}], "podIP": SECRET},
    "conditions": {"lastProbeTime": SECRET},
    "containerStatuses": {
        "state": {"terminated": {"exitCode": 1, "message": SECRET}},
        "lastState": {"waiting": {"reason": "CrashLoopBackOff", "message": SECRET}},
        "containerID": SECRET,
    },
    "webhooks": {"note": SECRET},
}
"""By the field that holds the object, or the list of objects, that they are planted into."""


def plant_secrets(value: Any, random: Random, field: str = "") -> Any:  # noqa: ANN401 - JSON
    """The object with fields that no part reads, of those which it does not have."""
    if isinstance(value, list):
        return [plant_secrets(each, random, field) for each in value]
    if not isinstance(value, dict):
        return value
    planted = {key: plant_secrets(each, random, key) for key, each in value.items()}
    there = PLANTED_FIELDS.get(field, {})
    for key in random.sample(sorted(there), random.randint(0, len(there))):
        extra = there[key]
        planted[key] = {**extra, **planted[key]} if isinstance(planted.get(key), dict) else planted.get(key, extra)
        if isinstance(extra, list) and isinstance(planted[key], list) and planted[key] is not extra:
            planted[key] = [*extra, *planted[key]]
    return planted


async def make_bundle(folder: Path, cluster: ScriptedCluster, *arguments: str) -> Mapping[str, str]:
    """The files of the bundle that the command writes, without their folder."""
    archive = folder / "bundle.tar.gz"
    flags = ["--kubeconfig", str(write_kubeconfig(folder, cluster.url)), "--output", str(archive), *arguments]
    assert await asyncio.to_thread(main, ["support-bundle", *flags]) == 0
    assert archive.stat().st_mode & 0o077 == 0
    with tarfile.open(archive) as opened:
        members = {entry.name.removeprefix("vrampack-support/"): opened.extractfile(entry) for entry in opened}
        return {name: content.read().decode() for name, content in members.items() if content is not None}


def read_parts(files: Mapping[str, str]) -> Mapping[str, Object]:
    """The manifest's parts by name."""
    return {part["name"]: part for part in json.loads(files["manifest.json"])["parts"]}


@pytest.mark.parametrize("seed", range(12))
async def test_the_bundle_contains_no_secret(seed: int, tmp_path: Path) -> None:
    random = Random(seed)
    answers = {
        path: answer if isinstance(answer, str) or path.endswith("vrampack-config") else plant_secrets(answer, random)
        for path, answer in build_answers().items()
    }
    assert SECRET in json.dumps(answers)
    async with ScriptedCluster(answers) as cluster:
        files = await make_bundle(tmp_path, cluster)
    assert [name for name, content in files.items() if SECRET in name or SECRET in content] == []
    assert [part["problem"] for part in read_parts(files).values() if part["problem"]] == []


async def test_the_bundle_contains_every_part(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    async with ScriptedCluster(build_answers(), denied=["deviceclasses"]) as cluster:
        files = await make_bundle(tmp_path, cluster)
    assert set(files) == {
        *("manifest.json", "versions.json", "own-pods.jsonl", "workloads.jsonl", "admission.jsonl", "access.jsonl"),
        *("configuration/vrampack-config/extender.yaml.json", "configuration/vrampack-config/scheduler.yaml.json"),
        *("logs/extender-1/extender.log", "logs/extender-1/extender.previous.log", "metrics/extender-1.txt"),
        *("logs/agent-1/agent.log", "logs/agent-1/agent.previous.log", "events.jsonl", "nodes.jsonl"),
        *("snapshot.json", "inspect.txt", "inspect.json", "explain/default.waits.txt"),
    }
    configuration = json.loads(files["configuration/vrampack-config/extender.yaml.json"])
    assert (configuration["unit_mib"], configuration["listen"]["verbs"]) == (512, "127.0.0.1:12345")
    scheduler = json.loads(files["configuration/vrampack-config/scheduler.yaml.json"])
    assert scheduler["extenders"] == [
        {"urlPrefix": "http://[redacted]@127.0.0.1:12345/gpushare-scheduler", "weight": 10}
    ]
    assert SAID in files["explain/default.waits.txt"]
    assert "8/15" in files["inspect.txt"]
    events = [json.loads(line) for line in files["events.jsonl"].splitlines()]
    assert [(each["reason"], each["message"]) for each in events] == [
        ("NodeNotReady", "[left out: not a message of ours]"),
        ("R", "refused, token=[redacted]"),
        ("R", SAID),
    ]
    assert "bound pod=default/one" in files["logs/extender-1/extender.log"]
    assert '"name":"other"' not in files["admission.jsonl"]
    assert '"caBundleSha256":"' in files["admission.jsonl"]
    parts = read_parts(files)
    assert parts["access"]["notes"] == ["vrampack-extender may not list deviceclasses"]
    assert parts["configuration"]["notes"] == [
        "vrampack-config/agent.yaml is left out: it cannot be used, and `vrampack config check` says why; see lines [3]",
        "vrampack-config/x is left out: it is not one YAML mapping",
    ]
    assert parts["metrics"]["notes"] == ["no metrics of agent-1: 404 NotFound: it is NotFound"]
    assert f"bundle.tar.gz: {len(files) - 1} files, " in capsys.readouterr().out


async def test_a_failed_part_does_not_affect_the_others(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    damaged: Any = [{"metadata": {"name": "n", "labels": 3}}, "no object"]  # Any: no API server answers so
    answers = build_answers() | {"/api/v1/nodes": damaged}
    refused = ("/api/v1/events", f"{OWN}/pods", f"{ADMISSION}/v1/validatingadmissionpolicies")
    async with ScriptedCluster(answers, refused=refused) as cluster:
        files = await make_bundle(tmp_path, cluster)
    parts = read_parts(files)
    assert {name: part["problem"] for name, part in parts.items() if part["problem"]} == {
        "own pods": "403 Forbidden: it is Forbidden",
        "events": "403 Forbidden: it is Forbidden",
        "nodes": "list nodes: not a list: Expected `object`, got `str` - at `$.items[1]`",
        "snapshot": "list nodes: not a list: Expected `object`, got `str` - at `$.items[1]`",
        "inspect": "nodes and pods were not read: see the part snapshot",
        "explain": "nodes and pods were not read: see the part snapshot",
    }
    assert "no validatingadmissionpolicies: 403 Forbidden: it is Forbidden" in parts["admission"]["notes"]
    assert "vrampack: events: not collected: 403 Forbidden: it is Forbidden\n" in capsys.readouterr().err


def test_bundle_size_is_limited() -> None:
    """What was collected first is kept; the manifest names the rest."""
    bundle = SupportBundle(datetime(2026, 1, 1, tzinfo=UTC), max_bytes=10)
    bundle.add_part("logs", PartContent((BundledFile("a", b"123456"), BundledFile("b", b"12345"))))
    bundle.add_part("events", PartContent((BundledFile("c", b"1234"),)))
    assert [report.files for report in bundle.reports] == [{"a": 6}, {"c": 4}]
    assert bundle.reports[0].notes == ("b is left out: with its 5 bytes the bundle would be too large",)


SECRET_TEXTS = {
    "a header": f"Authorization: Bearer {SECRET}",
    "a key and its value": f"hf_token={SECRET}",
    "JSON": f'{{"api_key": "{SECRET} and more"}}',
    "JSON in JSON": f'{{\\"password\\":\\"{SECRET}\\"}}',
    "an address": f"dial https://me:{SECRET}@host/",
    "a JSON web token": f"got {TOKEN}",
    "a key": f"-----BEGIN RSA PRIVATE KEY-----\n{SECRET}\n-----END RSA PRIVATE KEY-----",
    "a line of a kubeconfig": f"client-key-data: {SECRET}",
    "a key in base64": f"got {base64.b64encode(f'-----BEGIN RSA PRIVATE KEY-----{SECRET}'.encode()).decode()}",
    "a login to a registry": f'"auth":"{SECRET}"',
    "a variable in YAML": f"- name: HF_TOKEN\n  value: {SECRET}",
    "a variable in JSON": f'{{"name":"DB_PASSWORD","value":"{SECRET}"}}',
    "a variable in Python": f"EnvVar(name='MYSQL_PWD', value='{SECRET}')",
    "lines of YAML": f"password: |\n  {SECRET}",
    "a flag": f"--registry-password {SECRET}",
    "a signed address": f"https://host/x?X-Amz-Signature={SECRET}&sig={SECRET}",
    "a key that is cut off": f"-----BEGIN PRIVATE KEY-----\n{SECRET}",
}


@pytest.mark.parametrize("text", SECRET_TEXTS.values(), ids=SECRET_TEXTS)
def test_secret_looking_parts_of_free_text_are_redacted(text: str) -> None:
    redacted = redact_text(f"before {text}")
    assert SECRET not in redacted
    assert "before" in redacted
    assert REDACTED in redacted


def test_our_own_log_lines_are_not_redacted() -> None:
    line = "bound pod=ml/train-0 node=gpu-7 card=3 units=8 policy=binpack ms=4 digest=sha256:" + "ab" * 32
    assert redact_text(line) == line


@pytest.mark.parametrize(("account", "folder"), [("vrampack-extender", "common"), ("vrampack-agent", "agent")])
def test_checked_access_matches_the_shipped_roles(account: str, folder: str) -> None:
    (role,) = [
        item
        for item in load_objects(MANIFESTS / folder)
        if item["kind"] == "ClusterRole" and item["metadata"]["name"] == account
    ]
    granted = {
        (group, resource, verb)
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
        if not verb.startswith("impersonate")  # the identity an agent reads with differs from version to version
    }
    assert {(group, name, verb) for group, name, verbs in ACCESS_NEEDS[account] for verb in verbs} == granted
