"""The self-check: it counts the runtime's reading of the probe, and no other program's."""

from __future__ import annotations

import errno
import os
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from tests.fakes.cdi_runtime import CdiRuntime, start_cdi_runtime
from vrampack.agent.cdi.errors import CdiError
from vrampack.agent.cdi.read_watch import ReadWatch
from vrampack.agent.cdi.runtime_probe import ProbeResult, RuntimeProbe, parse_runtime
from vrampack.agent.cdi.spec_folder import SpecFolder
from vrampack.agent.limits.cgroups import find_process_owner


class ProbeHarness:
    """A node's folder and its /proc, in which the processes of a test are."""

    def __init__(self, folder: Path, stack: AsyncExitStack) -> None:
        self.folder = folder / "cdi"
        self.older = folder / "etc"
        """Another folder that runtimes may read."""
        self._elsewhere = folder / "elsewhere"
        self.proc = folder / "proc"
        for made in (self.folder, self.older, self._elsewhere, self.proc):
            made.mkdir()
        (self.proc / "self").symlink_to("/proc/self")
        self._stack = stack

    async def add_process(self, name: str, *, is_reading: bool = True) -> CdiRuntime:
        found = await start_cdi_runtime(self.folder if is_reading else self._elsewhere, name=name)
        self._stack.push_async_callback(found.close)
        (self.proc / str(found.pid)).symlink_to(f"/proc/{found.pid}")
        return found

    async def add_early_runtime(self, *others: Path) -> None:
        """A runtime that was there before the folder was."""
        self.folder.rmdir()
        found = await start_cdi_runtime(*others, self.folder)
        self._stack.push_async_callback(found.close)
        (self.proc / str(found.pid)).symlink_to(f"/proc/{found.pid}")
        self.folder.mkdir()

    def _is_in_pod(self, pid: int) -> bool:
        return find_process_owner(pid, self.proc) is not None

    async def probe(self, version: str = "containerd://2.1.3") -> ProbeResult:
        watch = ReadWatch()
        try:
            folders = [self.folder, self.older]
            probe = RuntimeProbe(SpecFolder(self.folder, watch), watch, self.proc, folders, is_in_pod=self._is_in_pod)
            return await probe.probe_runtime(parse_runtime(version))
        finally:
            watch.close()


@pytest.fixture
async def harness(tmp_path: Path) -> AsyncIterator[ProbeHarness]:
    async with AsyncExitStack() as stack:
        yield ProbeHarness(tmp_path, stack)


async def test_the_runtime_reads_the_probe(harness: ProbeHarness) -> None:
    runtime = await harness.add_process("containerd")
    assert await harness.probe() == ProbeResult(is_read=True, reason="containerd 2.1 reads specs")
    assert list(harness.folder.iterdir()) == []
    assert await runtime.resolve("anything") is None


@pytest.mark.usefixtures("short_silence")
@pytest.mark.parametrize(("version", "is_read"), [("containerd://1.7.27", {False}), ("containerd://2.1.3", {None})])
async def test_read_by_another_program_does_not_count_as_the_runtimes(
    harness: ProbeHarness, version: str, is_read: set[bool | None]
) -> None:
    """Dockerd beside a containerd that does not read. Containerd 2.1 may merely be older than the folder: undecided."""
    await harness.add_process("containerd", is_reading=False)
    await harness.add_process("dockerd")
    assert {(await harness.probe(version)).is_read} == is_read


@pytest.mark.usefixtures("short_silence")
async def test_both_runtimes_with_the_same_name_must_read_the_probe(harness: ProbeHarness) -> None:
    await harness.add_process("containerd")
    await harness.add_process("containerd", is_reading=False)
    result = await harness.probe()
    assert (result.is_read, result.reason) == (None, "only some of the 2 processes of containerd 2.1 read specs")


async def test_a_runtime_of_another_name_is_found(harness: ProbeHarness) -> None:
    await harness.add_process("crio")
    assert (await harness.probe("cri-o://1.31.0")).is_read is True


@pytest.mark.parametrize("version", ["containerd://1.6.20", "cri-o://1.27.4", "docker://29.0.0", "", "containerd"])
async def test_runtime_without_cdi_is_not_probed(harness: ProbeHarness, version: str) -> None:
    await harness.add_process("containerd")
    assert (await harness.probe(version)).is_read is False


async def test_process_named_containerd_in_a_pod_is_not_the_nodes_runtime(harness: ProbeHarness) -> None:
    """As seen from a container with its own cgroup namespace."""
    await harness.add_process("containerd")
    pod = harness.proc / "77"
    pod.mkdir()
    (pod / "comm").write_text("containerd\n")
    uid, container = "4be2f1a9-95b2-4e7f-8b57-6a4a6b1ad0c1", "0f" * 32
    (pod / "cgroup").write_text(f"0::/../../pod{uid}/{container}\n")
    (pod / "projid_map").write_text("")
    assert (await harness.probe()).is_read is True


async def test_reason_names_the_first_containerd_version_with_cdi(harness: ProbeHarness) -> None:
    result = await harness.probe("containerd://1.7.1")
    assert (result.is_read, result.reason) == (
        False,
        "containerd 1.7 takes no CDI devices; the first that does is 1.7.2",
    )


async def test_a_probe_that_sees_no_runtime_is_undecided(harness: ProbeHarness) -> None:
    assert (await harness.probe()).reason == "no process containerd is seen on this node"
    (harness.proc / "self").unlink()
    result = await harness.probe()
    assert (result.is_read, result.reason.partition(" is ")[2]) == (
        None,
        "not the node's /proc: which program reads a spec cannot be seen",
    )


async def test_a_probe_without_a_descriptor_left_is_undecided(
    harness: ProbeHarness, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(_: Path) -> None:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    with monkeypatch.context() as patch:
        patch.setattr(Path, "iterdir", fail)
        result = await harness.probe()
    assert result.is_read is None
    assert result.reason == "no process containerd is seen on this node"
    assert "Too many open files" in caplog.text


def test_a_spec_folder_that_cannot_be_read_is_not_removed(tmp_path: Path) -> None:
    """Only a folder that was there and is gone makes the agent end."""
    folder = tmp_path / "cdi"
    folder.mkdir()
    specs = SpecFolder(folder, ReadWatch())
    assert not specs.is_removed()
    folder.rmdir()
    assert specs.is_removed()
    folder.symlink_to(folder)
    assert not specs.is_removed()


async def test_an_unwritable_spec_folder_is_reported(harness: ProbeHarness) -> None:
    await harness.add_process("containerd", is_reading=False)
    harness.folder.rmdir()
    with pytest.raises(CdiError, match="no spec can be written into"):
        await harness.probe()


async def test_folder_newer_than_the_runtime_is_read_if_the_runtime_watches_another(
    harness: ProbeHarness,
) -> None:
    """After each reboot: /var/run is empty, /etc is not."""
    await harness.add_early_runtime(harness.older)
    assert (await harness.probe()).is_read is True
    assert list(harness.older.iterdir()) == []


@pytest.mark.usefixtures("short_silence")
async def test_probe_is_undecided_and_names_the_fix_if_the_folder_is_newer(harness: ProbeHarness) -> None:
    """The runtime watches no other folder, and looks for a missing one when it gives a device to a container."""
    await harness.add_early_runtime()
    harness.older.rmdir()
    result = await harness.probe()
    assert (result.is_read, result.is_fault) == (None, False)
    assert "it may hang or be older than the folder" in result.reason


@pytest.mark.usefixtures("short_silence")
async def test_an_older_containerd_is_reported_with_the_option_to_enable(harness: ProbeHarness) -> None:
    await harness.add_process("containerd", is_reading=False)
    assert "enable_cdi = true" in (await harness.probe("containerd://1.7.27")).reason
