"""The suite itself works: the shipped scheduler configuration, under the shipped account, gets one pod bound."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.e2e.auditing import audit_cluster
from tests.e2e.in_cluster import ExtenderProgram
from tests.fakes.proxy_thread import FaultProxyThread
from tests.support.control_plane.access_denials import ACCOUNT, NAMESPACE
from tests.support.control_plane.cluster import ControlPlane
from tests.support.manifest_builders import PODS, pod_manifest
from tests.support.polling import wait_until
from tests.support.processes import LOOPBACK, REPOSITORY, ManagedProcess

STARTS_AND_HANGS = """\
import pathlib, signal, sys
from tests.support.processes import ManagedProcess
program = ManagedProcess("program", ["sleep", "600"], directory=pathlib.Path(sys.argv[1]))
program.start()
print(program.pid, flush=True)
signal.pause()
"""


def test_a_pod_is_bound_through_the_shipped_scheduler_configuration(
    cluster: ControlPlane, extender: Callable[..., ExtenderProgram], scheduler: Callable[..., ManagedProcess]
) -> None:
    cluster.add_node("gpu-0", allocatable={"aliyun.com/gpu-mem": "15", "aliyun.com/gpu-count": "1"})
    extender()
    scheduler()
    cluster.request_ok("POST", PODS, pod_manifest("asks", 4))

    pod = cluster.wait_until(lambda: _bound(cluster, "asks"))

    assert pod["spec"]["nodeName"] == "gpu-0"
    assert (
        pod["metadata"]["annotations"]["ALIYUN_COM_GPU_MEM_IDX"] == "0"
    )  # the scheduler's own binder would leave none


def test_proxies_record_and_break_calls_on_both_sides_of_the_extender(
    cluster: ControlPlane,
    extender: Callable[..., ExtenderProgram],
    scheduler: Callable[..., ManagedProcess],
    api_proxy: FaultProxyThread,
    transcript: Path,
) -> None:
    """A proxy before the API server that can fail, another before the extender that writes down each call."""
    cluster.add_node("gpu-0", allocatable={"aliyun.com/gpu-mem": "15", "aliyun.com/gpu-count": "1"})
    front = extender(api=(LOOPBACK, api_proxy.port)).front
    scheduler()
    cut = api_proxy.when("POST", "/binding$").cut(times=1)
    cluster.request_ok("POST", PODS, pod_manifest("asks", 4))

    cluster.wait_until(lambda: _bound(cluster, "asks"))
    assert front is not None
    front.settled()  # the pod is bound a moment before the scheduler learns of it

    binds = [line for line in map(json.loads, transcript.read_text().splitlines()) if line["verb"] == "bind"]
    assert cut.hits == 1
    assert [line["request"]["Node"] for line in binds] == ["gpu-0", "gpu-0"]  # the first failed and was tried again


def test_scheduler_filters_by_gpu_memory_but_does_not_score_by_it(
    cluster: ControlPlane, extender: Callable[..., ExtenderProgram], scheduler: Callable[..., ManagedProcess]
) -> None:
    """The scheduler's own filter words the refusal; the log names what is off for scores only."""
    cluster.add_node("gpu-0", allocatable={"aliyun.com/gpu-mem": "15", "aliyun.com/gpu-count": "1"})
    extender()
    running = scheduler(verbosity=4)
    cluster.request_ok("POST", PODS, pod_manifest("too-big", 16))

    message = cluster.wait_until(lambda: _refusal(cluster, "too-big"))

    assert "1 Insufficient aliyun.com/gpu-mem" in message
    skipped = [line for line in running.log_path.read_text().splitlines() if "Skipped disabled plugin" in line]
    assert {_field(line, "extension") for line in skipped} == {"framework.ScorePlugin"}
    assert {_field(line, "plugin") for line in skipped} == {
        "NodeResourcesFit",
        "NodeResourcesBalancedAllocation",
        "ImageLocality",
    }


def test_a_refused_request_of_our_account_is_noticed(cluster: ControlPlane) -> None:
    """The check after each test is worth nothing if it cannot find a fault."""
    status, _ = cluster.request("GET", "/api/v1/secrets", token=cluster.token(NAMESPACE, ACCOUNT))

    (refusal,) = cluster.wait_until(cluster.refusals.drain)

    assert status == 403
    assert (refusal.user, refusal.verb) == (f"system:serviceaccount:{NAMESPACE}:{ACCOUNT}", "list")


def test_a_bind_that_falsely_reports_success_is_noticed(cluster: ControlPlane, transcript: Path) -> None:
    """The same for the auditor, which reads the calls that the proxy before the extender wrote down."""
    uid = cluster.request_ok("POST", PODS, pod_manifest("asks", 4))["metadata"]["uid"]
    asked = {"PodName": "asks", "PodNamespace": "default", "PodUID": uid, "Node": "gpu-0"}
    call = {"t": 0, "verb": "bind", "request": asked, "status": 200, "answer": {"Error": ""}, "error": None}
    transcript.write_text(json.dumps(call) + "\n")

    report = audit_cluster(cluster, transcript=transcript)
    transcript.unlink()  # the check after this test reads it too

    assert report.startswith("I4 pod default/asks")


def test_a_killed_suite_leaves_no_program_behind(tmp_path: Path) -> None:
    command = [sys.executable, "-c", STARTS_AND_HANGS, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=REPOSITORY) as suite:
        assert suite.stdout is not None
        program = Path("/proc", suite.stdout.readline().strip())
        wait_until(lambda: (program / "comm").read_text() == "sleep\n")  # asked by now to die with its parent
        suite.kill()

    wait_until(lambda: not program.exists() or _is_zombie(program), what=f"{program} is gone")


def test_a_reset_leaves_no_pod_node_or_workload_of_a_test(cluster: ControlPlane) -> None:
    cluster.add_node("gpu-0")
    cluster.request_ok("POST", "/api/v1/nodes", {"metadata": {"name": "held", "finalizers": ["example.com/held"]}})
    own = cluster.namespace()
    template = {"metadata": {"labels": {"app": "a"}}, "spec": pod_manifest("unused", 1)["spec"]}
    workload = {
        "metadata": {"name": "a"},
        "spec": {"serviceName": "a", "selector": {"matchLabels": {"app": "a"}}, "template": template},
    }
    cluster.request_ok("POST", f"/apis/apps/v1/namespaces/{own}/statefulsets", workload)
    cluster.wait_until(lambda: cluster.request_ok("GET", "/api/v1/pods")["items"])

    cluster.reset()

    for path in ("/api/v1/pods", "/api/v1/nodes", "/apis/apps/v1/statefulsets"):
        assert cluster.request_ok("GET", path)["items"] == []


def _is_zombie(process: Path) -> bool:
    """Dead, and not yet reaped by the process that inherits orphans here."""
    return "\nState:\tZ" in (process / "status").read_text()


def _bound(cluster: ControlPlane, name: str) -> Any:  # noqa: ANN401 - the pod as the API server holds it
    pod = cluster.request_ok("GET", f"{PODS}/{name}")
    return pod if "nodeName" in pod["spec"] else None


def _refusal(cluster: ControlPlane, name: str) -> str:
    conditions = cluster.request_ok("GET", f"{PODS}/{name}")["status"].get("conditions", [])
    return next((str(condition["message"]) for condition in conditions if condition["type"] == "PodScheduled"), "")


def _field(line: str, name: str) -> str:
    return line.partition(f'{name}="')[2].partition('"')[0]
