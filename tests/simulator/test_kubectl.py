"""The real kubectl against the embedded cluster: what docs/embedded-cluster.md says it can do.

Each test has its own cluster with one node, workload controllers and a kubelet. No scheduler runs: tests bind.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.support.control_plane import binaries
from vrampack.simulator.apiserver import ApiServer
from vrampack.simulator.kubelet import SimulatedKubelet
from vrampack.simulator.workload_controller import WorkloadController

pytestmark = pytest.mark.e2e

TIMEOUT_SECONDS = 30
MANIFEST = """
apiVersion: v1
kind: Node
metadata:
  name: gpu-1
  labels: {node-role.kubernetes.io/gpu: ""}
status:
  capacity: {cpu: "8", memory: 64Gi, aliyun.com/gpu-mem: "15"}
  conditions: [{type: Ready, status: "True"}]
---
apiVersion: v1
kind: Pod
metadata:
  name: single
  labels: {app: single}
spec:
  containers:
  - name: main
    image: example.com/app:1
    resources: {limits: {aliyun.com/gpu-mem: "4"}}
---
apiVersion: apps/v1
kind: StatefulSet
metadata:
  name: ordered
spec:
  replicas: 2
  selector: {matchLabels: {app: ordered}}
  template:
    metadata:
      labels: {app: ordered}
    spec:
      containers: [{name: main, image: "example.com/app:1", resources: {limits: {aliyun.com/gpu-mem: "2"}}}]
---
apiVersion: apps/v1
kind: Deployment
metadata:
  name: several
spec:
  replicas: 2
  selector: {matchLabels: {app: several}}
  template:
    metadata:
      labels: {app: several}
    spec:
      containers: [{name: main, image: "example.com/app:1"}]
"""
KINDS = ("node/gpu-1", "pod/single", "statefulset.apps/ordered", "deployment.apps/several")


@dataclass(frozen=True, slots=True)
class Done:
    """The result of one run of kubectl."""

    code: int
    out: str
    error: str

    def rows(self) -> list[list[str]]:
        """A printed table without its headings."""
        return [line.split() for line in self.out.splitlines()[1:]]


class KubectlCluster:
    """An embedded cluster, and kubectl pointed at it."""

    def __init__(self, api: ApiServer, kubectl: Path, directory: Path) -> None:
        self.api = api
        self._kubectl = kubectl
        self._directory = directory

    async def kubectl(self, *arguments: str, stdin: str = "", code: int = 0) -> Done:
        process = await self.start(*arguments)
        async with asyncio.timeout(TIMEOUT_SECONDS):
            out, error = await process.communicate(stdin.encode())
        done = Done(process.returncode or 0, out.decode(), error.decode())
        assert done.code == code, f"kubectl {' '.join(arguments)}: {done}"
        return done

    async def start(self, *arguments: str) -> asyncio.subprocess.Process:
        options = (f"--server={self.api.url}", f"--cache-dir={self._directory / 'cache'}")
        pipe = asyncio.subprocess.PIPE
        return await asyncio.create_subprocess_exec(
            self._kubectl,
            *options,
            *arguments,
            stdin=pipe,
            stdout=pipe,
            stderr=pipe,
            env={"HOME": str(self._directory)},
        )

    async def apply(self, manifest: str = MANIFEST) -> list[str]:
        """One line per object, e.g. `pod/single created`."""
        return (await self.kubectl("apply", "-f", "-", stdin=manifest)).out.splitlines()

    async def bind_all(self) -> None:
        """Bind every pod, also those created when others are ready; done when all of them run."""
        changed = asyncio.Event()
        self.api.store.subscribe(changed.set)
        async with asyncio.timeout(TIMEOUT_SECONDS):
            while any(pod["status"]["phase"] != "Running" for pod in self.api.list_pods()) or not self._is_complete():
                changed.clear()
                for pod in self.api.list_pods():
                    if "nodeName" not in pod["spec"]:
                        self._bind(pod["metadata"]["name"])
                await changed.wait()

    def _bind(self, name: str) -> None:
        self.api.store.bind("default", name, {"metadata": {"name": name}, "target": {"name": "gpu-1"}})

    def _is_complete(self) -> bool:
        owners = [self.api.get("statefulsets", "ordered"), self.api.get("deployments", "several")]
        return all(owner["spec"]["replicas"] == owner["status"].get("readyReplicas", 0) for owner in owners)


@pytest.fixture(scope="module")
def kubectl() -> Path:
    return binaries.locate_programs()["kubectl"]


@pytest.fixture
async def cluster(kubectl: Path, tmp_path: Path) -> AsyncIterator[KubectlCluster]:
    async with ApiServer() as api:
        controllers = [
            asyncio.create_task(each.run()) for each in (WorkloadController(api.store), SimulatedKubelet(api.store))
        ]
        yield KubectlCluster(api, kubectl, tmp_path)
        for controller in controllers:
            assert not controller.done(), controller.exception()
            controller.cancel()


@pytest.fixture
async def running(cluster: KubectlCluster) -> KubectlCluster:
    """A cluster with all objects of the manifest, and all pods running."""
    await cluster.apply()
    await cluster.bind_all()
    return cluster


async def test_apply_creates_once_and_then_configures_what_has_changed(cluster: KubectlCluster) -> None:
    changed = MANIFEST.replace("replicas: 2", "replicas: 1", 1).replace("{app: single}", '{app: single, more: "1"}')

    assert await cluster.apply() == [f"{kind} created" for kind in KINDS]
    assert await cluster.apply() == [f"{kind} unchanged" for kind in KINDS]
    said = ["unchanged", "configured", "configured", "unchanged"]
    assert await cluster.apply(changed) == [f"{kind} {word}" for kind, word in zip(KINDS, said, strict=True)]

    assert cluster.api.get("statefulsets", "ordered")["spec"]["replicas"] == 1
    assert cluster.api.get("pods", "single")["metadata"]["labels"] == {"app": "single", "more": "1"}


async def test_apply_supports_dry_run(cluster: KubectlCluster) -> None:
    done = await cluster.kubectl("apply", "--dry-run=server", "-f", "-", stdin=MANIFEST)

    assert done.out.splitlines() == [f"{kind} created (server dry run)" for kind in KINDS]
    assert cluster.api.list_pods() == cluster.api.list_nodes() == []


async def test_get_prints_tables(running: KubectlCluster) -> None:
    nodes = await running.kubectl("get", "nodes")
    pods = await running.kubectl("get", "pods", "-o", "wide", "-l", "app in (single, ordered)")
    workloads = await running.kubectl("get", "sts,deploy", "--no-headers")

    assert nodes.out.splitlines()[0].split() == ["NAME", "STATUS", "ROLES", "AGE", "VERSION"]
    assert [row[:3] for row in nodes.rows()] == [["gpu-1", "Ready", "gpu"]]
    assert pods.out.splitlines()[0].split() == (
        ["NAME", "READY", "STATUS", "RESTARTS", "AGE", "IP", "NODE", "NOMINATED", "NODE", "READINESS", "GATES"]
    )
    assert [row[:4] for row in pods.rows()] == [
        [name, "1/1", "Running", "0"] for name in ("ordered-0", "ordered-1", "single")
    ]
    assert {row[6] for row in pods.rows()} == {"gpu-1"}
    assert "statefulset.apps/ordered" in workloads.out
    assert ["deployment.apps/several", "2/2", "2", "2"] in [line.split()[:4] for line in workloads.out.splitlines()]


async def test_get_prints_objects_and_names(running: KubectlCluster) -> None:
    pod = json.loads((await running.kubectl("get", "pod", "single", "-o", "json")).out)
    yaml = (await running.kubectl("get", "sts", "ordered", "-o", "yaml")).out
    bound = await running.kubectl(
        "get", "pods", "--field-selector=spec.nodeName=gpu-1", "-o", "name", "-l", "app=ordered"
    )
    everything = await running.kubectl("get", "all", "-A", "-o", "name")

    assert (pod["kind"], pod["status"]["podIP"].rpartition(".")[0]) == ("Pod", "10.244.0")
    assert "kind: StatefulSet" in yaml
    assert bound.out.split() == ["pod/ordered-0", "pod/ordered-1"]
    assert {"pod/single", "statefulset.apps/ordered", "deployment.apps/several"} <= {*everything.out.split()}


async def test_get_supports_watch(running: KubectlCluster) -> None:
    process = await running.start("get", "pods", "-w", "--no-headers", "--field-selector=metadata.name=single")
    assert process.stdout is not None
    async with asyncio.timeout(TIMEOUT_SECONDS):
        before = (await process.stdout.readline()).split()
        running.api.patch("pods", "single", {"status": {"reason": "Tested"}}, is_status=True)
        after = (await process.stdout.readline()).split()
        process.terminate()
        await process.communicate()

    assert (before[:3], after[:3]) == ([b"single", b"1/1", b"Running"], [b"single", b"1/1", b"Tested"])


async def test_scale_and_rollout_status(running: KubectlCluster) -> None:
    await running.kubectl("scale", "sts/ordered", "deploy/several", "--replicas=3")
    waiting = [await running.start("rollout", "status", kind) for kind in ("sts/ordered", "deploy/several")]
    await running.bind_all()

    async with asyncio.timeout(TIMEOUT_SECONDS):
        said = [(await process.communicate())[0].decode() for process in waiting]

    assert [process.returncode for process in waiting] == [0, 0]
    assert said[0].splitlines()[-1].startswith("partitioned roll out complete: 3 new pods")
    assert said[1].splitlines()[-1] == 'deployment "several" successfully rolled out'


async def test_a_new_image_is_rolled_out(running: KubectlCluster) -> None:
    await running.kubectl("set", "image", "deploy/several", "main=example.com/app:2")
    await running.kubectl("rollout", "restart", "sts/ordered")
    await running.bind_all()

    await running.kubectl("rollout", "status", "deploy/several")
    await running.kubectl("rollout", "status", "sts/ordered")

    images = {pod["metadata"]["name"]: pod["spec"]["containers"][0]["image"] for pod in running.api.list_pods()}
    assert {image for name, image in images.items() if name.startswith("several")} == {"example.com/app:2"}


async def test_label_annotate_patch_taint_and_cordon(running: KubectlCluster) -> None:
    await running.kubectl("label", "pod", "single", "tier=web")
    await running.kubectl("annotate", "sts", "ordered", "note=kept")
    await running.kubectl("patch", "deploy", "several", "-p", '{"spec": {"replicas": 1}}')
    await running.kubectl("taint", "node", "gpu-1", "busy=yes:NoSchedule")
    await running.kubectl("cordon", "gpu-1")

    api = running.api
    assert api.get("pods", "single")["metadata"]["labels"]["tier"] == "web"
    assert api.get("statefulsets", "ordered")["metadata"]["annotations"]["note"] == "kept"
    assert api.get("deployments", "several")["spec"]["replicas"] == 1
    node = api.get("nodes", "gpu-1")["spec"]
    taint = {"key": "busy", "value": "yes", "effect": "NoSchedule"}
    assert (node["taints"], node["unschedulable"]) == ([taint], True)
    assert (await running.kubectl("get", "nodes")).rows()[0][1] == "Ready,SchedulingDisabled"


def _event(about: dict[str, Any], message: str) -> dict[str, Any]:
    metadata = about["metadata"]
    namespace = metadata.get("namespace", "")
    uid = metadata["uid"] if namespace else metadata["name"]  # kubelets write a node's name there
    return {
        "kind": "Event",
        "metadata": {"name": f"{metadata['name']}.1", "namespace": namespace or "default"},
        "involvedObject": {
            "apiVersion": "v1",
            "kind": about["kind"],
            "namespace": namespace,
            "name": metadata["name"],
            "uid": uid,
        },
        "type": "Normal",
        "reason": "Tested",
        "message": message,
        "lastTimestamp": "2026-01-02T03:04:05Z",
    }


async def test_events_are_listed_and_described(running: KubectlCluster) -> None:
    running.api.create(_event(running.api.get("pods", "single"), "card 0"))
    running.api.create(_event(running.api.get("nodes", "gpu-1"), "two cards"))

    listed = await running.kubectl("get", "events")
    about_pod = await running.kubectl("events", "--for=pod/single")
    pod = await running.kubectl("describe", "pod", "single")
    node = await running.kubectl("describe", "node", "gpu-1")

    assert [row[1:] for row in listed.rows()] == [
        ["Normal", "Tested", "node/gpu-1", "two", "cards"],
        ["Normal", "Tested", "pod/single", "card", "0"],
    ]
    assert [row[1:] for row in about_pod.rows()] == [["Normal", "Tested", "Pod/single", "card", "0"]]
    for shown, facts in ((pod, ("gpu-1/", "10.244.0.", "card 0")), (node, ("ordered-1", "single", "two cards"))):
        assert [fact for fact in facts if fact not in shown.out] == []


async def test_workloads_are_described(running: KubectlCluster) -> None:
    stateful = (await running.kubectl("describe", "sts", "ordered")).out
    deployed = (await running.kubectl("describe", "deploy", "several")).out

    assert "2 Running / 0 Waiting" in stateful
    assert "2 desired | 2 updated | 2 total | 2 available | 0 unavailable" in deployed


async def test_delete_waits_until_everything_is_gone(running: KubectlCluster) -> None:
    for what in ("pod/single", "sts/ordered", "deploy/several", "node/gpu-1"):
        assert "deleted" in (await running.kubectl("delete", what)).out
    left = await running.kubectl("get", "all,nodes", "--ignore-not-found")

    assert left.out == ""


async def test_drain_evicts_every_pod_of_the_node(running: KubectlCluster) -> None:
    done = await running.kubectl("drain", "gpu-1", "--force")
    assert "pod/single evicted" in done.out
    assert "node/gpu-1 drained" in done.out


async def test_a_deleted_pod_of_a_set_is_made_again(running: KubectlCluster) -> None:
    before = running.api.get("pods", "ordered-0")["metadata"]["uid"]

    await running.kubectl("delete", "pod", "ordered-0")
    await running.bind_all()

    assert running.api.get("pods", "ordered-0")["metadata"]["uid"] != before


async def test_delete_supports_orphan_and_foreground_cascade(running: KubectlCluster) -> None:
    await running.kubectl("delete", "sts", "ordered", "--cascade=orphan")
    await running.kubectl("delete", "deploy", "several", "--cascade=foreground")

    assert [pod["metadata"]["name"] for pod in running.api.list_pods()] == ["ordered-0", "ordered-1", "single"]


async def test_wait_supports_conditions_and_deletion(running: KubectlCluster) -> None:
    await running.kubectl("wait", "--for=condition=Ready", "pod/single")
    await running.kubectl("wait", "--for=condition=Available", "deploy/several")
    waiting = await running.start("wait", "--for=delete", "pod/single")
    running.api.delete("pods", "single")

    async with asyncio.timeout(TIMEOUT_SECONDS):
        await waiting.communicate()
    assert waiting.returncode == 0


REFUSED: dict[str, tuple[tuple[str, ...], str]] = {
    "server-side apply": (("apply", "--server-side", "-f", "-"), "415"),
    "a JSON patch": (("patch", "pod", "single", "--type=json", "-p", "[]"), "415"),
    "a generated deployment": (("create", "deployment", "x", "--image=x"), "unknown format"),
    "a replacement": (("replace", "-f", "-"), "does not allow this method"),
    "logs": (("logs", "single"), "(NotFound): no container runs in the embedded cluster"),
    "replica sets": (("get", "rs"), ": the embedded cluster has no ReplicaSets"),
    "a kind that is not kept": (("get", "services"), "doesn't have a resource type"),
    "an unknown field": (("get", "pods", "--field-selector=spec.color=red"), "field label not supported: spec.color"),
}


@pytest.mark.parametrize(("arguments", "text"), REFUSED.values(), ids=REFUSED)
async def test_unsupported_kubectl_commands_are_refused(
    running: KubectlCluster, arguments: tuple[str, ...], text: str
) -> None:
    done = await running.kubectl(*arguments, stdin=MANIFEST, code=1)

    assert text in done.error
