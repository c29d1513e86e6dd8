"""Containers on a host without Kubernetes: identified by cgroup, counted, recorded for the next agent."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from vrampack.agent.host.containers import HostContainer, HostContainers, make_host_container
from vrampack.agent.limits.cgroups import CgroupTree
from vrampack.agent.limits.errors import LimitError
from vrampack.agent.limits.workload import ResolvedContainer, Unresolved
from vrampack.cards.node import CardFacts

T4 = CardFacts(0, 14, 15109, "GPU-a", "Tesla T4")
V100 = CardFacts(1, 15, 16130, "GPU-b", "Tesla V100-SXM2-16GB")
DOCKER = "/system.slice/docker-ID.scope"


class FakeContainerHost:
    """Cgroups of v2 or of v1 that are files, and the processes in them."""

    def __init__(self, folder: Path, *, version: int = 2) -> None:
        self.folder = folder
        self.mount = folder / "cgroup"
        self.hierarchy = "unified" if version == 2 else "memory"
        self.mount.mkdir()
        if version == 2:
            (self.mount / "cgroup.controllers").touch()

    def tenants(self, *, may_overcommit: bool = False) -> HostContainers:
        made = HostContainers(self.folder / "tenants", CgroupTree(self.mount), may_overcommit=may_overcommit)
        made.restore_running()
        return made

    def runs(self, name: str, path: str = DOCKER, **mib: int) -> HostContainer:
        """A container with a process, and limits by the ends of uuids."""
        cgroup = path.replace("ID", name)
        folder = self.get_cgroup_folder(cgroup)
        folder.mkdir(parents=True)
        if self.hierarchy == "unified":
            (folder / "cgroup.events").write_text("populated 1\nfrozen 0\n")
        (folder / "cgroup.procs").write_text("7\n")
        return make_host_container(name, self.hierarchy, cgroup, {f"GPU-{end}": amount for end, amount in mib.items()})

    def ends(self, each: HostContainer) -> None:
        """Its last process exits; the cgroup stays."""
        for name, text in (("cgroup.events", "populated 0\nfrozen 0\n"), ("cgroup.procs", "")):
            if (self.get_cgroup_folder(each.cgroup) / name).exists():
                (self.get_cgroup_folder(each.cgroup) / name).write_text(text)

    def get_cgroup_folder(self, cgroup: str) -> Path:
        return (self.mount if self.hierarchy == "unified" else self.mount / self.hierarchy) / cgroup[1:]


@pytest.fixture(params=[1, 2], ids=["v1", "v2"])
def host(request: pytest.FixtureRequest, tmp_path: Path) -> FakeContainerHost:
    return FakeContainerHost(tmp_path, version=request.param)


def test_card_memory_is_granted_up_to_its_size(host: FakeContainerHost) -> None:
    tenants = host.tenants()
    tenants.add_container(host.runs("c1", a=6043), [T4])
    tenants.add_container(host.runs("c2", a=8058), [T4])
    # 15109 - 6043 - 8058 = 1008
    text = (
        r"card 0 \(GPU-a\) has 1008 of its 15109 MiB left and 1009 are asked; held by c2 \(8058\), c1 \(6043\): stop a"
    )
    with pytest.raises(LimitError, match=text):
        tenants.add_container(host.runs("c3", a=1009), [T4])
    tenants.add_container(host.runs("c4", a=1008), [T4])
    assert (tenants.sum_limits_mib("GPU-a"), tenants.sum_limits_mib("GPU-b")) == (15109, 0)


def test_each_of_several_cards_must_have_room(host: FakeContainerHost) -> None:
    tenants = host.tenants()
    tenants.add_container(host.runs("c1", b=16130), [T4, V100])
    with pytest.raises(LimitError, match=r"card 1 \(GPU-b\) has 0 of its 16130 MiB left and 1 are asked"):
        tenants.add_container(host.runs("c2", a=1, b=1), [T4, V100])
    assert tenants.sum_limits_mib("GPU-a") == 0


def test_overcommit_allows_more_than_the_card_has(host: FakeContainerHost) -> None:
    tenants = host.tenants(may_overcommit=True)
    for name in ("c1", "c2"):
        tenants.add_container(host.runs(name, a=15109), [T4])
    assert tenants.sum_limits_mib("GPU-a") == 2 * 15109


def test_full_card_does_not_block_containers_on_another(host: FakeContainerHost) -> None:
    """After a change of `overcommit`, or a card that shrank."""
    host.tenants(may_overcommit=True).add_container(host.runs("c1", a=99999), [T4])
    host.tenants().add_container(host.runs("c2", b=1), [T4, V100])


def test_memory_of_an_ended_container_is_given_again(host: FakeContainerHost) -> None:
    tenants = host.tenants()
    first = host.runs("c1", a=15109)
    tenants.add_container(first, [T4])
    host.ends(first)
    assert tenants.remove_ended() == (first,)
    assert list((host.folder / "tenants").iterdir()) == []
    tenants.add_container(host.runs("c2", a=15109), [T4])


def test_a_child_cgroup_keeps_a_container_alive(host: FakeContainerHost) -> None:
    """An init in a container puts every process into cgroups below; v1 knows no `populated`."""
    if host.hierarchy == "unified":
        return
    tenants = host.tenants()
    inner = host.runs("c1", a=1)
    tenants.add_container(inner, [T4])
    host.ends(inner)
    below = host.get_cgroup_folder(inner.cgroup) / "init.scope"
    below.mkdir()
    (below / "cgroup.procs").write_text("8\n")
    assert tenants.remove_ended() == ()


def test_next_agent_restores_running_containers(host: FakeContainerHost) -> None:
    runs, ended = host.runs("c1", a=6043), host.runs("c2", a=8058)
    before = host.tenants()
    for each in (runs, ended):
        before.add_container(each, [T4])
    host.ends(ended)
    after = host.tenants()
    assert after.list_containers() == (runs,)
    assert after.find_container(runs.owner) == runs
    assert after.find_container(ended.owner) is None


def test_a_damaged_file_is_deleted_and_logged(host: FakeContainerHost, caplog: pytest.LogCaptureFixture) -> None:
    host.tenants().add_container(host.runs("c1", a=6043), [T4])
    (file,) = (host.folder / "tenants").iterdir()
    file.write_bytes(file.read_bytes()[:-1])
    assert host.tenants().list_containers() == ()
    assert "container file dropped" in caplog.text
    assert not file.exists()


def test_a_container_whose_file_cannot_be_written_is_refused_and_holds_nothing(host: FakeContainerHost) -> None:
    """A folder in the file's place stands for a full file system."""
    tenants, each = host.tenants(), host.runs("a", a=6043)
    (host.folder / "tenants" / f"{each.key}.new").mkdir()
    with pytest.raises(LimitError, match=r"its limit cannot be written into .*tenants: Is a directory"):
        tenants.add_container(each, [T4])
    assert tenants.sum_limits_mib("GPU-a") == 0


def test_a_container_whose_file_cannot_be_deleted_holds_nothing(
    host: FakeContainerHost, caplog: pytest.LogCaptureFixture
) -> None:
    tenants, each = host.tenants(), host.runs("a", a=6043)
    tenants.add_container(each, [T4])
    file = host.folder / "tenants" / f"{each.key}.json"
    file.unlink()
    (file / "obstacle").mkdir(parents=True)
    host.ends(each)
    assert tenants.remove_ended() == (each,)
    assert tenants.sum_limits_mib("GPU-a") == 0
    assert "container file not deleted container=a" in caplog.text


def test_restarted_container_replaces_its_own_entry(host: FakeContainerHost) -> None:
    tenants = host.tenants()
    first = host.runs("c1", a=15109)
    tenants.add_container(first, [T4])
    again = make_host_container(first.id, first.hierarchy, first.cgroup, {"GPU-a": 8058})
    tenants.add_container(again, [T4])
    assert tenants.list_containers() == (again,)


def test_cgroup_shared_by_two_containers_is_refused(host: FakeContainerHost) -> None:
    tenants = host.tenants()
    first = host.runs("c1", a=1)
    tenants.add_container(first, [T4])
    other = make_host_container("c2", first.hierarchy, first.cgroup, {"GPU-a": 1})
    with pytest.raises(LimitError, match="is that of container c1: give each container a cgroup of its own"):
        tenants.add_container(other, [T4])


def test_containers_with_the_same_id_are_told_apart_by_cgroup(host: FakeContainerHost) -> None:
    """Each of containerd's namespaces may have a `web`."""
    tenants = host.tenants()
    for namespace in ("default", "other"):
        tenants.add_container(host.runs("web", f"/{namespace}/ID", a=7000), [T4])
    assert tenants.sum_limits_mib("GPU-a") == 14000


LINES = {
    "Docker, v2": ("unified", "/system.slice/docker-c1.scope", "0::/system.slice/docker-c1.scope\n"),
    "Docker, v1": ("memory", "/docker/c1", "9:name=systemd:/docker/c1\n4:cpu,memory:/docker/c1\n0::/\n"),
    "below it": ("memory", "/docker/c1", "4:memory:/docker/c1/init.scope/deeper\n"),
    "a name of systemd's v1 tree": ("systemd", "/docker/c1", "1:name=systemd:/docker/c1\n"),
    "colons in the path": ("unified", "/a/x:cri:c1", "0::/a/x:cri:c1\n"),
}


@pytest.mark.parametrize(("hierarchy", "cgroup", "text"), LINES.values(), ids=LINES)
def test_process_belongs_to_the_container_of_its_cgroup(tmp_path: Path, hierarchy: str, cgroup: str, text: str) -> None:
    host = FakeContainerHost(tmp_path)
    host.hierarchy = hierarchy
    tenants = host.tenants()
    each = make_host_container("c1", hierarchy, cgroup, {"GPU-a": 1})
    tenants.add_container(each, [T4])
    (tmp_path / "7").mkdir()
    (tmp_path / "7" / "cgroup").write_text(text)
    assert tenants.find_process_owner(7, tmp_path) == each.owner


STRANGERS = {
    "a neighbour": "0::/docker/c2\n",
    "its parent": "0::/docker\n",
    "a name that begins so": "0::/docker/c1x\n",
    "the path of another tree": "4:memory:/docker/c1\n0::/\n",
    "the root": "0::/\n",
}


@pytest.mark.parametrize("text", STRANGERS.values(), ids=STRANGERS)
def test_a_process_of_another_cgroup_has_no_owner(tmp_path: Path, text: str) -> None:
    tenants = FakeContainerHost(tmp_path).tenants()
    tenants.add_container(make_host_container("c1", "unified", "/docker/c1", {"GPU-a": 1}), [T4])
    (tmp_path / "7").mkdir()
    (tmp_path / "7" / "cgroup").write_text(text)
    assert tenants.find_process_owner(7, tmp_path) is None
    assert tenants.find_process_owner(8, tmp_path) is None
    assert tenants.find_container(None) is None


def test_a_containers_cgroup_names_cannot_change_its_identity(tmp_path: Path) -> None:
    tenants = FakeContainerHost(tmp_path).tenants()
    each = make_host_container("c1", "unified", "/docker/c1", {"GPU-a": 1})
    tenants.add_container(each, [T4])
    (tmp_path / "7").mkdir()
    (tmp_path / "7" / "cgroup").write_bytes(b"0::/docker/c1/a\xff\x0bb\n")
    assert tenants.find_process_owner(7, tmp_path) == each.owner


def test_deeply_nested_cgroups_are_searched_for_processes(tmp_path: Path) -> None:
    """On v1, where no file tells whether a tree has processes; deeper than Python's recursion limit."""
    host = FakeContainerHost(tmp_path, version=1)
    tenants = host.tenants()
    each = host.runs("c1", path="/ID", a=4000)
    tenants.add_container(each, [T4])
    host.ends(each)
    nested = [host.get_cgroup_folder(each.cgroup)]
    try:
        for _ in range(1200):
            nested.append(nested[-1] / "d")
            nested[-1].mkdir()
        (nested[-1] / "cgroup.procs").write_text("8\n")
        assert tenants.remove_ended() == ()
        (nested[-1] / "cgroup.procs").unlink()
        assert tenants.remove_ended() == (each,)
    finally:  # not by pytest, whose own removal is recursive
        subprocess.run(["rm", "-r", nested[0]], check=True)


def test_cgroup_too_deep_to_search_counts_as_having_a_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A path has 4,096 bytes at most, but relative names allow deeper folders."""
    host = FakeContainerHost(tmp_path, version=1)
    tenants = host.tenants()
    each = host.runs("c1", path="/ID", a=4000)
    tenants.add_container(each, [T4])
    host.ends(each)
    top = host.get_cgroup_folder(each.cgroup)
    monkeypatch.chdir(top)
    try:
        for _ in range(20):
            Path("d" * 250).mkdir()
            os.chdir("d" * 250)
        assert tenants.remove_ended() == ()
    finally:
        subprocess.run(["rm", "-r", top / ("d" * 250)], check=True)
    assert tenants.remove_ended() == (each,)


def test_a_process_in_nested_containers_belongs_to_the_inner_one(tmp_path: Path) -> None:
    tenants = FakeContainerHost(tmp_path).tenants()
    outer, inner = (
        make_host_container(name, "unified", path, {})
        for name, path in (("c1", "/docker/c1"), ("c2", "/docker/c1/x/c2"))
    )
    for each in (outer, inner):
        tenants.add_container(each, [])
    (tmp_path / "7").mkdir()
    (tmp_path / "7" / "cgroup").write_text("0::/docker/c1/x/c2/init\n")
    assert tenants.find_process_owner(7, tmp_path) == inner.owner


def test_a_container_is_listed_with_its_limit_until_it_is_gone(host: FakeContainerHost) -> None:
    """One that still asks the library of an earlier back end keeps its limit, too."""
    containers = host.tenants()
    running = host.runs("c1", a=4000)
    containers.add_container(running, (CardFacts(0, 15, 16130, "GPU-a"),))
    (desired,) = containers.list_desired()
    assert (desired.budget_name, desired.limits_mib, desired.reported_container) == (running.key, {"GPU-a": 4000}, "c1")
    assert desired.find_cgroup() == host.get_cgroup_folder(running.cgroup)
    assert containers.get_limits_mib(running.key, "c1") == {"GPU-a": 4000}
    assert containers.resolve_container(running.owner) == ResolvedContainer("c1", {"GPU-a": 4000})
    assert containers.resolve_leftover(running.owner) == ResolvedContainer("c1", {"GPU-a": 4000})
    assert not containers.is_gone(running.key)
    host.ends(running)
    containers.remove_ended()
    assert containers.is_gone(running.key)
    assert containers.resolve_container(running.owner) is Unresolved.UNKNOWN_OWNER
    assert containers.get_limits_mib(running.key, "c1") is None
