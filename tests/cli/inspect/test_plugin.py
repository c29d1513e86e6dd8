"""The one file that people install, run as kubectl runs it, over a kubectl that serves files."""

from __future__ import annotations

import io
import json
import os
import pty
import resource
import stat
import subprocess
import sys
import zipfile
from collections.abc import Sequence
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

import pytest

from tests.cli.inspect import fake_kubectl
from tests.cli.inspect.clusters import CLUSTERS, GoldenCluster
from vrampack.cli import kubectl_plugin
from vrampack.cli.inspect import kubectl_reader
from vrampack.cli.inspect.kubectl_reader import SWITCHES, VALUE_FLAGS, KubectlReader
from vrampack.cli.inspect.main import run_as_plugin
from vrampack.cli.version import VERSION

GOLDEN = Path(__file__).parent / "golden"
FLAGS = {"summary.txt": (), "details.txt": ("-d",), "wide.txt": ("-o", "wide"), "json": ("-o", "json")}
MORE_THAN_A_BARE_PYTHON_SECONDS = 0.3


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The plugin, built once."""
    path = tmp_path_factory.mktemp("plugin") / "kubectl-inspect-cgpu"
    kubectl_plugin.build_plugin(path)
    return path


@dataclass(frozen=True)
class PluginSite:
    """A folder on PATH with a kubectl and a Python without packages in it, and the plugin."""

    folder: Path
    plugin: Path

    def serve(self, objects: GoldenCluster) -> None:
        for kind, items in (("nodes", objects.nodes), ("pods", objects.pods)):
            (self.folder / f"{kind}.json").write_text(json.dumps(items))

    def environment(self, **more: str) -> dict[str, str]:
        return {"PATH": f"{self.folder}:/usr/bin:/bin", "HOME": str(self.folder)} | more

    def run(
        self, *arguments: str, stdout: TextIO | None = None, **environment: str
    ) -> subprocess.CompletedProcess[str]:
        """The plugin's own main function in this process, as to start the file takes ten times as long."""
        shown, said = stdout or io.StringIO(), io.StringIO()
        with pytest.MonkeyPatch.context() as patch, redirect_stdout(shown), redirect_stderr(said):
            patch.delenv("KUBECTL", raising=False)
            for name, value in self.environment(**environment).items():
                patch.setenv(name, value)
            patch.setattr(sys, "argv", [str(self.plugin), *arguments])
            try:
                code = run_as_plugin(VERSION)
            except SystemExit as ended:
                code = int(ended.code or 0)
        text = shown.getvalue() if isinstance(shown, io.StringIO) else ""
        return subprocess.CompletedProcess(arguments, code, text, said.getvalue())

    def run_file(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """It lies in a folder without our sources, and `python3` is found as its first line says."""
        return subprocess.run(
            [self.plugin, *arguments],
            env=self.environment(),
            cwd=self.folder,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    def calls(self) -> list[list[str]]:
        path = self.folder / "calls.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


@pytest.fixture
def site(tmp_path: Path, built: Path) -> PluginSite:
    kubectl = tmp_path / "kubectl"
    kubectl.write_text(f'#!/bin/sh\nexec {sys.executable} -I -S {fake_kubectl.__file__} {tmp_path} "$@"\n')
    kubectl.chmod(0o755)
    (tmp_path / "python3").symlink_to(Path(sys.executable).resolve())
    made = PluginSite(tmp_path, built)
    made.serve(CLUSTERS["recorded"])
    return made


@pytest.mark.parametrize(("suffix", "flags"), FLAGS.items(), ids=FLAGS)
def test_the_plugin_prints_the_golden_bytes(site: PluginSite, suffix: str, flags: Sequence[str]) -> None:
    """Those of the other clusters are compared in `test_golden`, without a process for each."""
    done = site.run_file(*flags)
    assert (done.returncode, done.stdout, done.stderr) == (0, (GOLDEN / f"recorded.{suffix}").read_text(), "")


def test_the_plugin_needs_only_the_standard_library(site: PluginSite) -> None:
    """Isolated, and without the folder where packages are installed."""
    done = subprocess.run(
        [sys.executable, "-I", "-S", site.plugin, "-o", "yaml"],
        env=site.environment(),
        cwd=site.folder,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("apiVersion: vrampack.dev/v1\nkind: Inspection\n")


def test_many_pages_are_one_list(site: PluginSite) -> None:
    """12 nodes in pages of 5 are 3 calls, 11 pods are 3 more; each continues where the last one ended."""
    site.serve(CLUSTERS["twelve-nodes"])
    (site.folder / "limit").write_text("5")
    assert site.run().stdout == (GOLDEN / "twelve-nodes.summary.txt").read_text()
    paths = [call[-1] for call in site.calls()]
    assert [path.partition("?")[0] for path in paths] == ["/api/v1/nodes"] * 3 + ["/api/v1/pods"] * 3
    assert [path.partition("continue=")[2] for path in paths] == ["", "5", "10"] * 2


def test_pods_that_hold_nothing_are_not_requested(site: PluginSite) -> None:
    site.serve(CLUSTERS["terminating-and-finished"])
    assert site.run("-d").stdout == (GOLDEN / "terminating-and-finished.details.txt").read_text()
    _, pods = (call[-1] for call in site.calls())
    assert "fieldSelector=spec.nodeName%21%3D%2Cstatus.phase%21%3DSucceeded%2Cstatus.phase%21%3DFailed" in pods
    served = fake_kubectl.page(
        site.folder, "pods", {"limit": "9", "fieldSelector": "spec.nodeName!=,status.phase!=Failed"}
    )
    assert [pod["metadata"]["name"] for pod in served["items"]] == ["leaving", "done", "elsewhere"]


def test_a_list_that_expires_half_way_is_read_again(site: PluginSite) -> None:
    site.serve(CLUSTERS["twelve-nodes"])
    (site.folder / "limit").write_text("5")
    (site.folder / "fault").write_text("expired-once")
    done = site.run()
    assert (done.returncode, done.stdout) == (0, (GOLDEN / "twelve-nodes.summary.txt").read_text())
    (site.folder / "fault").write_text("expired")
    done = site.run()
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.splitlines()[-1] == (
        "kubectl inspect cgpu: the list of nodes expired while it was read, twice; try again"
    )


def test_kubectl_flags_are_passed_through(site: PluginSite) -> None:
    joined = [f"{flag}=a b" for flag in VALUE_FLAGS]
    apart = [word for flag in VALUE_FLAGS for word in (flag, "a b")]
    for given in (joined, apart):
        assert site.run(*given, "-d").returncode == 0
    assert [call[:-3] for call in site.calls()] == [joined] * 4


def test_flags_keep_their_order_and_their_number(site: PluginSite) -> None:
    given = ["-s", "https://x", "--as=u", "--as-group=a", "--as-group", "b", "-v=6", "--context=c"]
    assert site.run("cn-hangzhou.192.168.2.167", *given, "-d").returncode == 0
    want = ["--server=https://x", "--as=u", "--as-group=a", "--as-group=b", "--v=6", "--context=c"]
    assert [call[:-3] for call in site.calls()] == [want] * 2


@pytest.mark.parametrize("value", ["", "=true", "=false"])
def test_a_switch_does_not_swallow_a_node_name(site: PluginSite, value: str) -> None:
    given = [flag + value for flag in SWITCHES]
    done = site.run(*(word for switch in given for word in (switch, "cn-hangzhou.192.168.2.167")))
    assert (done.returncode, done.stdout) == (0, (GOLDEN / "recorded.summary.txt").read_text())
    assert [call[:-3] for call in site.calls()] == [given] * 2


def test_a_missing_right_is_named_and_the_own_pods_are_shown(site: PluginSite) -> None:
    """After kubectl's own error."""
    said = 'Error from server (Forbidden): nodes is forbidden: User "eve" cannot list resource "nodes"'
    (site.folder / "fault").write_text(said)
    done = site.run()
    assert (done.returncode, done.stdout.splitlines()[0].split()[:2]) == (0, ["POD", "NODE"])
    theirs, ours = done.stderr.splitlines()
    assert theirs == said
    assert ours.startswith("kubectl inspect cgpu: the right to list nodes in the whole cluster is missing")


def test_any_other_failure_of_kubectl_exits_1(site: PluginSite) -> None:
    (site.folder / "fault").write_text("error: context was not found for specified context: nope")
    done = site.run("--context", "nope")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (
        "error: context was not found for specified context: nope\nkubectl inspect cgpu: kubectl could not list nodes\n"
    )


def test_a_missing_kubectl_is_reported(site: PluginSite) -> None:
    (site.folder / "kubectl").unlink()
    done = site.run(PATH=str(site.folder))
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (
        "kubectl inspect cgpu: cannot run kubectl: No such file or directory; install kubectl, or name it in $KUBECTL\n"
    )


def test_another_kubectl_can_be_named(site: PluginSite) -> None:
    (site.folder / "kubectl").rename(site.folder / "oc")
    assert site.run(KUBECTL=str(site.folder / "oc")).returncode == 0


def test_pages_that_are_too_large_are_halved_until_one_object_is_left(
    site: PluginSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.serve(CLUSTERS["twelve-nodes"])
    monkeypatch.setattr(kubectl_reader, "PAGE_SIZE", 8)
    monkeypatch.setattr(kubectl_reader, "MAX_PAGE_BYTES", 100)
    pages = list(KubectlReader((), str(site.folder / "kubectl")).read_pages("nodes"))
    assert [len(json.loads(page)["items"]) for page in pages] == [1] * 12
    assert len(site.calls()) == 3 + 12


def test_an_answer_that_is_no_list_is_an_error(site: PluginSite) -> None:
    (site.folder / "kubectl").write_text("#!/bin/sh\necho '<html>log in first</html>'\n")
    done = site.run()
    assert (done.returncode, done.stdout) == (1, "")
    assert "the list of nodes cannot be read: not JSON" in done.stderr


def test_a_missing_node_exits_1_beside_existing_ones(site: PluginSite) -> None:
    site.serve(CLUSTERS["gpushare"])
    done = site.run("nope", "gpu-node-2", "nope")
    assert done.returncode == 1
    assert done.stdout.splitlines()[1].startswith("gpu-node-2  10.0.0.12  0/16")
    assert done.stdout.splitlines()[-3] == "21/48 (43%)"
    assert done.stderr == "kubectl inspect cgpu: node nope not found\n"
    done = site.run("nope")
    assert (done.returncode, done.stdout) == (1, "")
    done = site.run("nope", "-o", "json")
    assert (done.returncode, json.loads(done.stdout)["nodes"]) == (1, [])


def test_node_without_gpu_memory_is_distinguished_from_a_missing_one(site: PluginSite) -> None:
    site.serve(CLUSTERS["no-gpu-nodes"])
    done = site.run("cpu-1")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "kubectl inspect cgpu: node cpu-1 has no GPU memory to share\n"


MISUSE = {
    "unknown flag": (["--nope"], "--nope"),
    "unknown form": (["-o", "xml"], "invalid choice: 'xml'"),
    "two forms": (["-d", "-o", "json"], "not allowed with argument"),
    "a namespace": (["-n", "default"], "there is no -n: pods of every namespace hold memory"),
    "no unit": (["--unit-mib", "0"], "'0' is not a whole number from 1 to "),
    "a shortened flag": (["--kubeconf", "x"], "--kubeconf"),
}


@pytest.mark.parametrize(("arguments", "said"), MISUSE.values(), ids=MISUSE)
def test_misuse_exits_2_and_makes_no_call(site: PluginSite, arguments: Sequence[str], said: str) -> None:
    done = site.run(*arguments)
    assert (done.returncode, done.stdout, site.calls()) == (2, "", [])
    assert said in done.stderr


def test_the_plugin_uses_the_name_it_is_called_by(site: PluginSite, built: Path) -> None:
    other = site.folder / "kubectl-inspect-gpushare"
    other.symlink_to(built)
    for name, path in (("cgpu", built), ("gpushare", other)):
        done = PluginSite(site.folder, path).run_file("--version")
        assert (done.returncode, done.stdout) == (0, f"kubectl inspect {name} {VERSION}\n")


@pytest.mark.parametrize(
    ("environment", "is_red"),
    [({"TERM": "xterm"}, True), ({"TERM": "xterm", "NO_COLOR": "1"}, False), ({"TERM": "dumb"}, False)],
    ids=["terminal", "NO_COLOR", "dumb"],
)
def test_colour_is_used_only_on_terminals_that_want_it(
    site: PluginSite,
    environment: dict[str, str],
    is_red: bool,  # noqa: FBT001 - a parameter
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    site.serve(CLUSTERS["unhealthy"])
    monkeypatch.delenv("NO_COLOR", raising=False)
    master, slave = pty.openpty()
    with open(slave, "w") as terminal:  # noqa: PTH123 - a descriptor
        assert site.run(stdout=terminal, **environment).returncode == 0
    shown = b""
    while chunk := _read(master):
        shown += chunk
    os.close(master)
    assert (b"\x1b[31m4/15!\x1b[0m" in shown) is is_red
    assert (b"\x1b" in shown) is is_red


def test_reader_that_closes_the_pipe_early_causes_no_error(site: PluginSite) -> None:
    """The pipe is closed before anything is written, as `| head` may do: no traceback, no complaint."""
    with subprocess.Popen(
        [site.plugin], env=site.environment(), cwd=site.folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as running:
        assert running.stdout is not None
        assert running.stderr is not None
        running.stdout.close()
        said = running.stderr.read()
    assert (running.returncode, said) == (0, b"")


def test_a_full_disk_is_named_in_one_line(site: PluginSite) -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [site.plugin], env=site.environment(), cwd=site.folder, stdout=full, stderr=subprocess.PIPE, check=False
        )
    assert done.returncode == 1
    assert done.stderr == b"kubectl inspect cgpu: cannot write the output: No space left on device\n"


def test_an_old_python_is_refused_with_the_required_version(site: PluginSite) -> None:
    """3.11 cannot become older, so it is made to believe that it is; up to this check the file is what 3.6 can read."""
    with zipfile.ZipFile(site.plugin) as archive:
        main = archive.read("__main__.py").decode()
    compile(main, "__main__.py", "exec", _feature_version=6)
    pretend = (
        f"import sys, runpy; sys.version_info = (3, 6, 9); runpy.run_path({str(site.plugin)!r}, run_name='__main__')"
    )
    done = subprocess.run([sys.executable, "-c", pretend], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "kubectl inspect cgpu needs Python 3.11 or newer; this is 3.6\n"


def test_the_same_sources_make_the_same_bytes(built: Path, tmp_path: Path) -> None:
    again = tmp_path / "folder" / "again"
    assert kubectl_plugin.main([str(again)]) == 0
    assert again.read_bytes() == built.read_bytes()
    assert built.read_bytes().startswith(b"#!/usr/bin/env python3\n")
    assert stat.S_IMODE(built.stat().st_mode) == 0o755
    assert [path.name for path in again.parent.iterdir()] == ["again"]


def test_the_built_file_contains_only_the_plugin_and_its_modules(built: Path) -> None:
    with zipfile.ZipFile(built) as archive:
        names = archive.namelist()
    assert names == sorted(names)
    rooms = {name.rpartition("/")[0] for name in names}
    assert rooms == {"", "vrampack", "vrampack/cards", "vrampack/cli", "vrampack/cli/inspect"}
    assert {name for name in names if name.rpartition("/")[0] in ("", "vrampack", "vrampack/cli")} == {
        "LICENSE",
        "__main__.py",
        "vrampack/__init__.py",
        "vrampack/cli/__init__.py",
        "vrampack/cli/arguments.py",
        "vrampack/cli/output.py",
    }


def test_builder_requires_exactly_one_path(capsys: pytest.CaptureFixture[str]) -> None:
    assert kubectl_plugin.main([]) == 2
    assert capsys.readouterr().err == "usage: python -m vrampack.cli.kubectl_plugin FILE\n"


def test_the_plugin_starts_fast(site: PluginSite) -> None:
    """Beyond a Python that does nothing, in CPU time: others use the machine too. Nothing here waits for a disk or a line."""
    (site.folder / "kubectl").write_text(
        '#!/bin/sh\necho \'{"kind":"List","metadata":{"resourceVersion":"1"},"items":[]}\'\n'
    )
    bare = min(_cpu_seconds(site, ["python3", "-c", "pass"]) for _ in range(3))
    ours = min(_cpu_seconds(site, [str(site.plugin)]) for _ in range(3))
    assert ours - bare < MORE_THAN_A_BARE_PYTHON_SECONDS


def _cpu_seconds(site: PluginSite, command: list[str]) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, env=site.environment(), cwd=site.folder, stdout=subprocess.DEVNULL, timeout=60, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime


def _read(descriptor: int) -> bytes:
    """What a terminal shows; empty when its other end is closed."""
    try:
        return os.read(descriptor, 4096)
    except OSError:
        return b""
