"""`python -m tests.node [ARGUMENTS OF PYTEST]`: the tests of this folder, on a machine that is the same afterwards.

    prepare (programs, images) > look at the machine > namespaces: mounts, pytest > put back > look again, compare

Without arguments three parts run side by side, each in namespaces and on nodes of its own: Debian's containerd, the releases
that are built, and the tests that wait longest. The output of the others is printed when all are over.
Everything that runs in there dies with the first process of the PID namespace, and that one with this process.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import IO

from tests.node import images
from tests.node.containerd_release import DEBIAN_1_6, PROGRAMS, RELEASES
from tests.node.first_builds import build_programs
from tests.node.machine import HostState, processes_in
from tests.node.node_site import BUILD, LOGS, VARIABLE, NodeSite
from tests.node.nvidia_toolkit import TOOLKIT_PROGRAMS
from tests.support.joined_reports import joined_reports
from tests.support.polling import wait_until
from tests.support.processes import REPOSITORY

INSIDE = Path(__file__).with_name("inside.sh")
NAMESPACES = ("--mount", "--propagation=private", "--net", "--pid", "--ipc", "--uts", "--fork", "--mount-proc")
HEALTH, CHART = "tests/node/test_health.py", "tests/node/test_chart.py"
PARTS: Sequence[Sequence[str]] = (
    (f"--containerd={DEBIAN_1_6.name}", f"--ignore={HEALTH}"),
    (*(f"--containerd={release.name}" for release in RELEASES if release != DEBIAN_1_6), f"--ignore={CHART}"),
    (HEALTH, CHART),
)
"""Tests of a node wait more than they work: three parts keep two processors busy, and end at about the same time."""


def main(arguments: Sequence[str], *, has_product: bool = True) -> int:
    """The exit code of pytest, or 1 if the machine is not as it was. Without the product its image is not made either."""
    if os.geteuid() != 0:
        sys.exit("tests.node: needs root, for namespaces and mounts")
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))  # so that the machine is put back
    if subprocess.run([REPOSITORY / ".ci/need", "node"], check=False).returncode:
        return 1  # it has said what is missing, and how to get it
    # The settings of the kernel are one for all, so runs take turns.
    with Path("/run/lock/vrampack-node" if Path("/run/lock").is_dir() else "/tmp/vrampack-node.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        return _run(arguments, has_product=has_product)


def _run(arguments: Sequence[str], *, has_product: bool) -> int:
    programs = build_programs()
    archives = images.prepare_images(BUILD, programs.control_plane, has_product=has_product)
    shutil.rmtree(LOGS, ignore_errors=True)
    before = HostState.read()
    sites: list[NodeSite] = []

    def make_site() -> NodeSite:
        around = NodeSite(Path(tempfile.mkdtemp(prefix="vrampack-node-")))
        sites.append(around)
        _link(around.programs, programs.control_plane.values())
        for name, program in programs.helm.items():
            (around.programs / name).symlink_to(program)
        _link(around.toolkit, [programs.toolkit / program for program in TOOLKIT_PROGRAMS])
        _link(around.archives, archives)
        for name, folder in programs.runtimes.items():
            _link(around.containerd(name), [folder / program for program in PROGRAMS])
        return around

    try:
        code = _inside(make_site(), arguments, os.environ) if arguments else _run_parts([make_site() for _ in PARTS])
    finally:
        for around in sites:
            before.restore(cgroup=around.cgroup)
            shutil.rmtree(around.site)
    left = _left(before)
    sys.stdout.write("".join(f"{line}\n" for line in left) or "the machine is as it was\n")
    return code or (1 if left else 0)


def _run_parts(sites: Sequence[NodeSite]) -> int:
    """The greatest of their exit codes."""
    with ExitStack() as stack:
        environments = stack.enter_context(joined_reports(len(PARTS)))
        outputs = [None, *(stack.enter_context(tempfile.TemporaryFile("w+")) for _ in PARTS[1:])]
        with ThreadPoolExecutor() as pool:
            codes = list(pool.map(_inside, sites, PARTS, environments, outputs))
        for said in filter(None, outputs):
            said.seek(0)
            sys.stdout.write(said.read())
    return max(map(abs, codes))  # below 0: ended by a signal


def _left(before: HostState) -> list[str]:
    """Lasting differences: what other programs beside this one make comes and goes."""
    left: list[str] = []

    def is_as_it_was() -> bool:
        left[:] = before.differences(HostState.read())
        return not left

    with suppress(TimeoutError):
        wait_until(is_as_it_was, timeout_seconds=30)
    return left


def _link(folder: Path, files: Iterable[Path]) -> None:
    folder.mkdir(parents=True)
    for file in files:
        (folder / file.name).symlink_to(file)


def _inside(
    around: NodeSite, arguments: Sequence[str], environ: Mapping[str, str], output: IO[str] | None = None
) -> int:
    """Pytest as a child of the namespace's first process; returns its exit code when no process is left in there."""
    environment = {**environ, VARIABLE: str(around.site)}
    pytest = [sys.executable, "-m", "pytest", "-m", "node", "-p", "no:randomly", *arguments]
    if not any(argument.startswith("tests/") for argument in arguments):
        pytest.append("tests/node")
    command = [
        "setpriv",
        "--pdeathsig",
        "KILL",
        "unshare",
        *NAMESPACES,
        "--kill-child=SIGKILL",
        "sh",
        str(INSIDE),
        *pytest,
    ]
    started = subprocess.Popen(command, cwd=REPOSITORY, env=environment, stdout=output, stderr=output)
    namespace = _pid_namespace(started)
    try:
        return started.wait()
    finally:
        started.kill()
        wait_until(lambda: not processes_in(namespace), what="the processes of the namespaces are gone")


def _pid_namespace(started: subprocess.Popen[bytes]) -> str:
    """`unshare` itself stays outside; the namespace of its children is another link."""
    link = Path(f"/proc/{started.pid}/ns/pid_for_children")

    def entered() -> str:
        with suppress(OSError):
            other = str(link.readlink())
            return other if other != str(Path("/proc/self/ns/pid").readlink()) else ""
        return ""

    return wait_until(entered, what="unshare has made its namespaces")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
