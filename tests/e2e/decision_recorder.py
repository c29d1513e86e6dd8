"""Has a real kube-scheduler place pods of openb, and writes down what it decided.

    .venv/bin/python -m tests.e2e.decision_recorder

replaces tests/simulator/decisions: for a new version of Kubernetes. Two minutes; it needs what `make e2e` needs.

The scheduler has the configuration that is shipped for a cluster's own one, and its plug-ins, scores and sampling. The extender
is a scripted one: it lets all nodes pass and gives the first names points.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from random import Random

import yaml

from tests.e2e import in_cluster
from tests.fakes.scripted_extender import ScriptedExtender
from tests.support.control_plane.cluster import ControlPlane
from tests.support.manifest_builders import PODS
from tests.support.manifests import MANIFESTS
from tests.support.processes import ManagedProcess
from tests.support.scheduler_decisions.openb_sample import (
    Request,
    build_node,
    build_pod,
    node_name,
    pod_name,
    sample_nodes,
    sample_requests,
)
from tests.support.scheduler_decisions.recording import (
    NOWHERE,
    DecisionRecording,
    RecordedDecision,
    write_decisions,
)
from tests.support.scheduler_decisions.scheduler_log import BALANCE, FIT, LOG_FLAGS, LoggedDecision, SchedulerLogReader
from tests.support.scheduler_recordings.scenarios import RESOURCE, SCHEDULER

SHIPPED = MANIFESTS / "kubeadm" / "control-plane" / "scheduler.yaml"
NODES = 240
RECORDINGS = {"shipped": (2000, 16), "serial": (400, 1)}
"""How many pods, and how many threads look at nodes: 16 is what ships. Of one thread alone it is known which nodes it looks at."""
SEED = 17
EXTENDER_FACTOR = 100
"""The shipped weight of 10, times 10, because extenders score up to 10 and plug-ins up to 100."""
POLL_SECONDS = 0.1
WITHIN_SECONDS = 1200
READ_CHARACTERS = 2_000_000
"""Of the log at a time: a tenth of a second."""

SchedulerStart = Callable[..., ManagedProcess]


async def record_decisions(
    cluster: ControlPlane, start_scheduler: SchedulerStart, *, node_count: int, pod_count: int, parallelism: int
) -> DecisionRecording:
    """Pods wait before the scheduler starts, so that it decides without a pause, and each once."""
    random = Random(SEED)
    nodes = {node_name(position): node for position, node in enumerate(sample_nodes(node_count, random))}
    requests = {pod_name(position): request for position, request in enumerate(sample_requests(pod_count, random))}
    for node, amounts in nodes.items():
        cluster.request_ok("POST", "/api/v1/nodes", build_node(node, amounts, RESOURCE))
    for pod, request in requests.items():
        cluster.request_ok("POST", PODS, build_pod(pod, request, RESOURCE, SCHEDULER))
    headers = {"Authorization": f"Bearer {cluster.admin_token}"}
    async with ScriptedExtender(cluster.api_url, headers=headers, tls=cluster.tls) as extender:
        process = start_scheduler(configuration=_configure(extender.url, parallelism), flags=LOG_FLAGS)
        read = await _follow_log(process.log_path, pod_count)
    version = str(cluster.request_ok("GET", "/version")["gitVersion"])
    positions = {name: position for position, name in enumerate(read.nodes)}
    decisions = [_convert(logged, requests[logged.pod], positions) for logged in read.decisions]
    return DecisionRecording(version, parallelism, tuple(nodes[name] for name in positions), tuple(decisions))


def _configure(url: str, parallelism: int) -> str:
    """The shipped file, for pods of the suite's own resource: the scheduler binds, so that all that differs is named here."""
    given = yaml.safe_load(SHIPPED.read_text())
    given["parallelism"] = parallelism
    given["leaderElection"] = {"leaderElect": False}
    given["clientConnection"] = {"qps": 2000, "burst": 4000}
    given["profiles"] = [{"schedulerName": SCHEDULER}]
    (extender,) = given["extenders"]
    extender |= {"urlPrefix": url, "managedResources": [{"name": RESOURCE, "ignoredByScheduler": False}]}
    extender["httpTimeout"] = f"{WITHIN_SECONDS}s"
    del extender["bindVerb"], extender["preemptVerb"]
    return yaml.safe_dump(given)


async def _follow_log(path: Path, pod_count: int) -> SchedulerLogReader:
    """Read until every pod was decided, in parts: the extender answers between two of them."""
    reader = SchedulerLogReader()
    async with asyncio.timeout(WITHIN_SECONDS):
        with path.open() as log:
            rest = ""
            while reader.ended < pod_count:
                part = log.read(READ_CHARACTERS)
                whole, _, rest = (rest + part).rpartition("\n")
                reader.read_lines(whole.splitlines())
                await asyncio.sleep(0 if part else POLL_SECONDS)  # a log has no event
    return reader


def _convert(logged: LoggedDecision, request: Request, positions: dict[str, int]) -> RecordedDecision:
    """Raises `ValueError` where a score is not what its parts say, or another plug-in tells nodes apart."""
    names = sorted(logged.totals, key=positions.__getitem__) or ([logged.chosen] if logged.chosen else [])
    scores = {plugin: [given[name] for name in names] for plugin, given in logged.plugins.items()}
    nothing = [0] * len(names)
    emptiness, balance = (scores.pop(plugin, nothing) for plugin in (FIT, BALANCE))
    extender = [EXTENDER_FACTOR * logged.extender.get(name, 0) for name in names]
    others = {plugin: given[0] for plugin, given in scores.items() if len(set(given)) == 1}
    if others.keys() != scores.keys():
        raise ValueError(f"pod {logged.pod}: nodes are told apart by {', '.join(scores.keys() - others.keys())}")
    parts = zip(emptiness, balance, extender, strict=True)
    sums = [sum(each) + sum(others.values()) for each in parts]
    if logged.totals and sums != [logged.totals[name] for name in names]:
        raise ValueError(f"pod {logged.pod}: a total is not the sum of its scores")
    return RecordedDecision(
        request,
        tuple(positions[name] for name in names),
        tuple(emptiness) if logged.totals else (),
        tuple(balance) if logged.totals else (),
        tuple(extender) if any(extender) else (),
        logged.evaluated,
        positions.get(logged.chosen, NOWHERE),
    )


def main() -> None:
    """Both recordings, each in a cluster of its own."""
    for name, (pod_count, parallelism) in RECORDINGS.items():
        with tempfile.TemporaryDirectory() as folder, ControlPlane.start(Path(folder)) as cluster:
            cluster.install_manifests()
            with ExitStack() as stack:
                start = partial(_start_scheduler, stack, cluster)
                made = asyncio.run(
                    record_decisions(cluster, start, node_count=NODES, pod_count=pod_count, parallelism=parallelism)
                )
        path = write_decisions(name, made)
        sys.stdout.write(f"{path.name}: {len(made.decisions)} decisions, {path.stat().st_size} bytes\n")


def _start_scheduler(
    stack: ExitStack, cluster: ControlPlane, *, configuration: str, flags: Sequence[str]
) -> ManagedProcess:
    process = in_cluster.start_scheduler(cluster, configuration=configuration, flags=flags)
    stack.callback(process.kill)
    return process


if __name__ == "__main__":
    main()
