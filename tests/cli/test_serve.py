"""`vrampack serve`: the real process, from its first answer to its last."""

from __future__ import annotations

import asyncio
import json
import signal
import socket
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.fakes.faults import ProxyRule
from tests.fakes.proxy import FaultProxy
from tests.support import recorded_requests
from tests.support.extender_process import ExtenderProcess, run_extender_process
from vrampack.cli.version import VERSION
from vrampack.simulator.apiserver import ApiServer

PREFIX = "/gpushare-scheduler"
HEAD = "apiVersion: vrampack.dev/v1\nkind: ExtenderConfiguration\n"
BIND = json.loads(recorded_requests.read_recording("bind.ncc-true_ignoredByScheduler-true.json"))
FILTER = json.loads(recorded_requests.read_recording("filter.ncc-true_ignoredByScheduler-true.json"))


@pytest.fixture
async def api() -> AsyncIterator[ApiServer]:
    """The recorded nodes, 11 units held on gpu-node-0, and the pod of the recorded filter and bind calls, unbound."""
    async with ApiServer() as server:
        for node in recorded_requests.recorded_nodes():
            server.restore({"kind": "Node", **node})
        filler = next(pod for pod in recorded_requests.recorded_pods() if pod["metadata"]["name"] == "filler-0")
        for pod in (filler, FILTER["Pod"]):
            server.restore({"kind": "Pod", **pod})
        yield server


@pytest.fixture
async def proxy(api: ApiServer) -> AsyncIterator[FaultProxy]:
    """In front of it, and can be told to fail."""
    async with FaultProxy(int(api.url.rpartition(":")[2])) as between:
        yield between


async def test_file_and_flags_apply_and_a_policy_change_takes_effect_at_runtime(
    proxy: FaultProxy, tmp_path: Path
) -> None:
    """Spread, then packed, then a file that cannot be read; under a path that a flag sets."""
    file = tmp_path / "extender.yaml"
    file.write_text(HEAD + "policy: {default: spread}\n")
    async with run_extender_process(tmp_path, proxy.url, "--config", str(file), "--url-prefix", "/x") as service:
        await service.wait_until_ready()
        assert (await service.post(f"{PREFIX}/filter", FILTER))[0] == 404
        spread = json.loads((await service.post("/x/prioritize", FILTER))[1])
        file.write_text(HEAD)
        await service.wait_for_answer(
            f"{service.health}/metrics", lambda _, text: "vrampack_config_generation 2.0" in text
        )
        packed = json.loads((await service.post("/x/prioritize", FILTER))[1])
        file.write_text("no mapping")
        await service.wait_for_answer(
            f"{service.health}/metrics", lambda _, text: "vrampack_config_reload_failures_total 1.0" in text
        )
        assert json.loads((await service.post("/x/prioritize", FILTER))[1]) == packed
    assert max(packed, key=lambda each: each["Score"])["Host"] == "gpu-node-0"
    assert max(spread, key=lambda each: each["Score"])["Host"] == "gpu-node-1"


async def test_serve_is_alive_at_once_and_ready_after_both_lists(proxy: FaultProxy, tmp_path: Path) -> None:
    """And not sooner after its start than Bindings of a killed process may land; the tests below start with 0."""
    held = proxy.when("GET", r"^/api/v1/pods").hold()
    async with run_extender_process(tmp_path, proxy.url, "--ready-after", "60") as service:
        await service.wait_for_answer(f"{service.health}/healthz", lambda status, _: status == 200)
        for listener in (service.verbs, service.health):
            status, text = await service.get(f"{listener}/readyz")
            assert (status, "not complete" in text) == (503, True)
            assert json.loads((await service.get(f"{listener}/version"))[1]) == {
                "version": VERSION,
                "configGeneration": 1,
            }
        status, text = await service.post(f"{PREFIX}/filter", FILTER)
        assert (status, json.loads(text)["NodeNames"]) == (200, [])
        assert "not complete" in json.loads(text)["Error"]
        held.release()
        why = "Bindings of an earlier process may land until 60 s after the start"
        await service.wait_for_answer(f"{service.verbs}/readyz", lambda status, text: status == 503 and why in text)
        assert json.loads((await service.post(f"{PREFIX}/filter", FILTER))[1])["Error"] == f"not ready: {why}"


async def test_serve_places_a_pod_lists_it_and_logs_its_own_lines(api: ApiServer, tmp_path: Path) -> None:
    """11 of 15 units are held on gpu-node-0: 4 fit there, tightly, and then nothing more does."""
    async with run_extender_process(tmp_path, api.url) as service:
        await service.wait_until_ready()
        scores = json.loads((await service.post(f"{PREFIX}/prioritize", FILTER))[1])
        assert max(scores, key=lambda each: int(each["Score"]))["Host"] == "gpu-node-0"
        assert json.loads((await service.post(f"{PREFIX}/bind", BIND))[1]) == {"Error": ""}
        assert api.get("pods", BIND["PodName"])["spec"]["nodeName"] == "gpu-node-0"

        def shows_bound(_: int, text: str) -> bool:
            pods = json.loads(text)["nodes"][0]["devs"][0]["pods"]
            return {pod["state"] for pod in pods} == {"bound"}

        status, text = await service.wait_for_answer(f"{service.verbs}{PREFIX}/inspect/gpu-node-0", shows_bound)
        node = json.loads(text)["nodes"][0]
        assert (status, node["name"], node["totalGPU"], node["usedGPU"]) == (200, "gpu-node-0", 15, 15)
        assert [(pod["name"], pod["usedGPU"]) for pod in node["devs"][0]["pods"]] == [
            ("binpack-1", 4),
            ("filler-0", 11),
        ]
        everything = json.loads((await service.get(f"{service.verbs}{PREFIX}/inspect"))[1])
        assert [each["name"] for each in everything["nodes"]] == ["gpu-node-0", "gpu-node-1"]
        assert (await service.get(f"{service.verbs}{PREFIX}/inspect/none"))[0] == 404
        assert (await service.get(f"{service.health}{PREFIX}/inspect"))[0] == 404
        check_metrics((await service.get(f"{service.health}/metrics"))[1])
        service.process.send_signal(signal.SIGTERM)
        assert await service.wait_for_exit() == 0
        check_log(await service.read_log())


def check_metrics(page: str) -> None:
    families = {family.name: family for family in text_string_to_metric_families(page)}
    assert all(name.startswith("vrampack_") and not name.endswith("_created") for name in families)
    labels = {label for family in families.values() for sample in family.samples for label in sample.labels}
    assert not labels & {"pod", "card", "uid"}
    binds = {
        sample.labels["result"]: sample.value
        for sample in families["vrampack_bind"].samples
        if sample.name.endswith("_total")
    }
    assert binds["ok"] == 1
    assert sum(binds.values()) == 1
    assert "vrampack_scheduler_config_findings -1.0\n" in page


def check_log(text: str) -> None:
    """The listeners' own lines would appear twice: there are two of them. One of ours names what was not checked."""
    lines = [line.split(" ", 2)[2] for line in text.splitlines()]
    assert [line.split(" ")[1].partition(".")[0] for line in lines] == ["extender"] * len(lines)
    assert len(lines) == len(set(lines)) >= 4
    not_checked = "scheduler configuration not checked reason=--scheduler-config is not given"
    assert f"INFO extender.app {not_checked}" in lines


async def test_sigterm_lets_the_bind_under_way_finish(proxy: FaultProxy, api: ApiServer, tmp_path: Path) -> None:
    """The API server's reply is held: unready at once, no new bind, success for the first one, and then the end.

    Connections that are idle, or have sent half a request, are not waited for.
    """
    held = proxy.when("POST", r"/binding$").hold_reply()
    async with run_extender_process(tmp_path, proxy.url) as service:
        await service.wait_until_ready()
        port = int(service.verbs.rpartition(":")[2])
        with socket.create_connection(("127.0.0.1", port)), socket.create_connection(("127.0.0.1", port)) as half:
            half.sendall(b"POST /gpushare-scheduler/filter HTTP/1.1\r\n")
            await stop_during_a_bind(service, proxy, held)
        assert "Traceback" not in await service.read_log()
    assert api.get("pods", BIND["PodName"])["spec"]["nodeName"] == "gpu-node-0"


async def stop_during_a_bind(service: ExtenderProcess, proxy: FaultProxy, held: ProxyRule) -> None:
    binding = asyncio.create_task(service.post(f"{PREFIX}/bind", BIND))
    await proxy.reached(held)
    service.process.send_signal(signal.SIGTERM)
    await service.wait_for_answer(f"{service.verbs}/readyz", lambda status, text: status == 503 and "stopping" in text)
    refused = json.loads((await service.post(f"{PREFIX}/bind", {**BIND, "PodUID": "another"}))[1])["Error"]
    assert "stopping" in refused
    assert "nothing was bound" in refused
    held.release()
    assert await binding == (200, '{"Error":""}')
    assert await service.wait_for_exit() == 0


async def test_serve_waits_for_an_api_server_that_is_not_up_yet(tmp_path: Path) -> None:
    async with run_extender_process(tmp_path, "http://127.0.0.1:9") as service:
        await service.wait_for_answer(f"{service.health}/readyz", lambda status, _: status == 503)
        assert (await service.get(f"{service.health}/healthz"))[0] == 200
        service.process.send_signal(signal.SIGINT)
        assert await service.wait_for_exit() == 0


async def test_a_port_in_use_exits_1_and_names_it(api: ApiServer, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        async with run_extender_process(tmp_path, api.url, "--listen", address) as service:
            assert await service.wait_for_exit() == 1
            log = await service.read_log()
    assert f"vrampack: cannot listen on {address}: Address already in use" in log
    assert "Traceback" not in log


async def test_unusable_tls_files_exit_2_and_are_named(tmp_path: Path) -> None:
    config = tmp_path / "extender.yaml"
    config.write_text(f"{HEAD}tls: {{cert_file: /nowhere/c, key_file: /nowhere/k, client_ca_file: /nowhere/a}}\n")
    async with run_extender_process(tmp_path, "http://127.0.0.1:9", "--config", str(config)) as service:
        assert await service.wait_for_exit() == 2
        log = await service.read_log()
    assert "tls.cert_file /nowhere/c" in log
    assert "Traceback" not in log
