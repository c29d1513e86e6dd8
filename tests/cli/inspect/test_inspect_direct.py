"""`vrampack inspect`: the same output as the plugin's, read by the kube client from an API server that speaks HTTP."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import yaml

from tests.cli.explain.objects import a_bound_pod, a_waiting_pod
from tests.cli.inspect.clusters import CLUSTERS
from tests.fakes.proxy import FaultProxy
from vrampack.cli import inspect_direct
from vrampack.cli.inspect.own_pods import format_own_pods, list_own_pods
from vrampack.cli.version import VERSION
from vrampack.kube import list_pager
from vrampack.simulator.apiserver import ApiServer
from vrampack.simulator.kubeconfig import write_kubeconfig

FORBIDDEN = b'{"kind":"Status","code":403,"reason":"Forbidden","message":"not you"}'
GOLDEN = Path(__file__).parent / "golden"


@pytest.fixture
async def api() -> AsyncIterator[ApiServer]:
    """Twelve nodes and eleven pods."""
    async with ApiServer() as server:
        objects = CLUSTERS["twelve-nodes"]
        for kind, items in (("Node", objects.nodes), ("Pod", objects.pods)):
            for item in items:
                server.restore({"kind": kind, "apiVersion": "v1", **item})
        yield server


@pytest.fixture
async def proxy(api: ApiServer) -> AsyncIterator[FaultProxy]:
    """In front of it, and can be told to fail."""
    async with FaultProxy(int(api.url.rpartition(":")[2])) as between:
        yield between


@pytest.fixture(autouse=True)
def _outside_a_cluster(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The user who runs the tests may have clusters of their own: the tests must not read them."""
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))


async def inspect(*arguments: str) -> int:
    """In a thread: the command has a loop of its own."""
    return await asyncio.to_thread(inspect_direct.main, arguments)


async def test_inspect_prints_what_the_plugin_prints(
    api: ApiServer, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(list_pager, "FIRST_LIMIT", 5)
    kubeconfig = str(write_kubeconfig(tmp_path, api.url))
    for form, flags in (("summary", []), ("details", ["-d"]), ("wide", ["-o", "wide"])):
        assert await inspect("--kubeconfig", kubeconfig, *flags) == 0
        assert capsys.readouterr() == ((GOLDEN / f"twelve-nodes.{form}.txt").read_text(), "")


async def test_the_kubeconfig_is_found_as_kubectl_finds_it(
    api: ApiServer, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The flag, else the variable, else the home folder; one that is named must be there."""
    file = write_kubeconfig(tmp_path, api.url)
    monkeypatch.setenv("KUBECONFIG", str(file))
    assert await inspect("node-3") == 0
    assert await inspect("--kubeconfig", str(tmp_path / "none")) == 1
    monkeypatch.delenv("KUBECONFIG")
    assert await inspect() == 1
    assert str(tmp_path / "home" / ".kube" / "config") in capsys.readouterr().err
    (tmp_path / "home" / ".kube").mkdir(parents=True)
    file.rename(tmp_path / "home" / ".kube" / "config")
    assert await inspect("node-3") == 0
    assert await inspect("node-33") == 1
    assert capsys.readouterr().err == "vrampack inspect: node node-33 not found\n"


async def test_inside_a_pod_its_account_is_used(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "127.0.0.1")
    assert await inspect() == 1
    assert "vrampack inspect: service account of this pod: " in capsys.readouterr().err


async def test_a_list_that_expires_half_way_is_read_again(
    proxy: FaultProxy, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(list_pager, "FIRST_LIMIT", 5)
    kubeconfig = str(write_kubeconfig(tmp_path, proxy.url))
    proxy.when("GET", r"continue=").gone(times=1)
    assert await inspect("--kubeconfig", kubeconfig) == 0
    assert capsys.readouterr().out == (GOLDEN / "twelve-nodes.summary.txt").read_text()


def test_an_own_pod_that_cannot_be_read_hides_no_other() -> None:
    damaged = {"metadata": {"name": "damaged", "namespace": "ours", "labels": 1}}
    pods, notes = list_own_pods([json.dumps({"items": [damaged, a_waiting_pod("w", 3)]}).encode()])
    assert [each.pod.name for each in pods] == ["w"]
    (note,) = notes
    assert note.startswith("a pod cannot be read and is left out: ")


def test_the_table_of_own_pods_is_no_wider_than_the_terminal() -> None:
    said = {"type": "VrampackPlacement", "status": "False", "message": "it asks for more than there is. " * 9}
    waiting = a_waiting_pod("w", 3, status={"conditions": [said]})
    pods, _ = list_own_pods([json.dumps({"items": [waiting]}).encode()])
    lines = format_own_pods(pods, None, max_width=80).splitlines()
    assert [max(map(len, lines)), lines[1][-1]] == [80, "\N{HORIZONTAL ELLIPSIS}"]


@pytest.mark.parametrize("hidden", ["/api/v1/nodes", "/api/v1/pods"])
async def test_users_who_may_not_list_the_cluster_see_their_own_pods(
    hidden: str, api: ApiServer, proxy: FaultProxy, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Those of the context's namespace, with what they hold and why they wait."""
    answer = {"type": "VrampackPlacement", "status": "False", "message": "asks for 20 units"}
    conditions = [{"type": "PodScheduled", "message": "0/1 nodes"}, answer]
    held = a_bound_pod("held", "gpu-1", {0: 4}, annotations={"limit-mib.vrampack.dev/main": "4301"})
    for pod in (held, a_waiting_pod("told", 20, status={"conditions": conditions}), a_waiting_pod("new", 3)):
        pod["metadata"]["namespace"] = "ours"
        api.restore(pod)
    kubeconfig = write_kubeconfig(tmp_path, proxy.url)
    written = yaml.safe_load(kubeconfig.read_text())
    written["contexts"][0]["context"]["namespace"] = "ours"
    kubeconfig.write_text(yaml.safe_dump(written))
    proxy.when("GET", hidden).answer(403, FORBIDDEN)
    assert await inspect("--kubeconfig", str(kubeconfig)) == 0
    said = capsys.readouterr()
    assert said.out.splitlines() == [
        "POD        NODE   CARD  UNITS  LIMIT(MiB)  WAITS FOR",
        "ours/held  gpu-1  0         4  main 4301   -",
        "ours/new   -      -         3  -           -",
        "ours/told  -      -        20  -           asks for 20 units",
    ]
    assert said.err.endswith("403 Forbidden: not you; these are the pods of your own namespace\n")
    assert await inspect("--kubeconfig", str(kubeconfig), "-o", "json") == 0
    (first, _, last) = json.loads(capsys.readouterr().out)["pods"]
    assert (first["node"], first["cards"], first["limitsMib"]) == (
        "gpu-1",
        [{"index": 0, "units": 4}],
        {"main": "4301"},
    )
    assert (last["askedUnits"], last["waitsFor"]) == (20, "asks for 20 units")


async def test_a_refused_or_unanswered_list_exits_1(
    proxy: FaultProxy, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kubeconfig = str(write_kubeconfig(tmp_path, proxy.url))
    proxy.when("GET", r"/pods").answer(403, FORBIDDEN)
    assert await inspect("--kubeconfig", kubeconfig) == 1
    assert capsys.readouterr() == ("", "vrampack inspect: cannot list pods: 403 Forbidden: not you\n")
    assert await inspect("--kubeconfig", str(write_kubeconfig(tmp_path, "http://127.0.0.1:9"))) == 1
    assert capsys.readouterr().err.startswith("vrampack inspect: cannot list nodes: list nodes: ")


async def test_version_is_printed_and_flags_of_kubectl_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    """Its own flags only: what kubectl would do with a token or a proxy, this client does not."""
    with pytest.raises(SystemExit) as raised:
        inspect_direct.main(["--version"])
    assert raised.value.code == 0
    assert capsys.readouterr().out == f"vrampack inspect {VERSION}\n"
    with pytest.raises(SystemExit) as raised:
        inspect_direct.main(["--token", "x"])
    assert raised.value.code == 2
