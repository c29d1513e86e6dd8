"""From pods to cgroup folders and back, for every way in which kubelet and runtimes name them.

The trees are folders with the names that kubelet (cgroup manager: `cgroupfs`, `systemd`), containerd, CRI-O and Docker
give; `test_real_cgroups.py` does the same with cgroups of this kernel.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from vrampack.agent.limits.cgroups import CgroupOwner, CgroupTree, find_process_owner, parse_owner
from vrampack.agent.limits.errors import LimitError

UID = "1d3a9a10-77ab-4c0d-9e1f-0242ac110002"
LOW = UID.replace("-", "_")
OTHER = "99999999-77ab-4c0d-9e1f-0242ac110002"
HASH = "0f1e2d3c4b5a69788796a5b4c3d2e1f0"
ID = "4f1e" * 16
OTHER_ID = "ab" * 32
ALL = CgroupOwner(UID, ID)

CGROUPFS = f"/kubepods/burstable/pod{UID}"
SYSTEMD = f"/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{LOW}.slice"
KIND = f"/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-besteffort.slice/kubelet-kubepods-besteffort-pod{LOW}.slice"

OWNERS = {
    "cgroupfs, burstable": (f"{CGROUPFS}/{ID}", ALL),
    "cgroupfs, best effort": (f"/kubepods/besteffort/pod{UID}/{ID}", ALL),
    "cgroupfs, guaranteed": (f"/kubepods/pod{UID}/{ID}", ALL),
    "cgroupfs, CRI-O": (f"{CGROUPFS}/crio-{ID}", ALL),
    "cgroupfs, the pod itself": (CGROUPFS, CgroupOwner(UID)),
    "cgroupfs, below the container": (f"{CGROUPFS}/{ID}/init/deeper", ALL),
    "a static pod's hash": (f"/kubepods/pod{HASH}/{ID}", CgroupOwner(HASH, ID)),
    "systemd, burstable": (f"{SYSTEMD}/cri-containerd-{ID}.scope", ALL),
    "systemd, best effort": (
        f"/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod{LOW}.slice/cri-containerd-{ID}.scope",
        ALL,
    ),
    "systemd, guaranteed": (f"/kubepods.slice/kubepods-pod{LOW}.slice/cri-containerd-{ID}.scope", ALL),
    "systemd, a static pod's hash": (
        f"/kubepods.slice/kubepods-pod{HASH}.slice/crio-{ID}.scope",
        CgroupOwner(HASH, ID),
    ),
    "systemd, CRI-O with crun": (f"{SYSTEMD}/crio-{ID}.scope/container", ALL),
    "systemd, CRI-O's monitor is no container": (f"{SYSTEMD}/crio-conmon-{ID}.scope", CgroupOwner(UID)),
    "systemd, Docker": (f"{SYSTEMD}/docker-{ID}.scope", ALL),
    "systemd, the pod itself": (SYSTEMD, CgroupOwner(UID)),
    "kind, systemd": (f"{KIND}/cri-containerd-{ID}.scope", ALL),
    "kind, cgroupfs, in Docker's": (f"/docker/{OTHER_ID}/kubelet/kubepods/burstable/pod{UID}/{ID}", ALL),
    "kind, systemd, in Docker's": (f"/system.slice/docker-{OTHER_ID}.scope{KIND}/cri-containerd-{ID}.scope", ALL),
    "cgroupRoot, systemd, with a dash": (
        f"/a_b.slice/a_b-kubepods.slice/a_b-kubepods-pod{LOW}.slice/crio-{ID}.scope",
        ALL,
    ),
    "a systemd name with a cgroupfs runtime": (
        f"/system.slice/containerd.service/kubepods-burstable-pod{LOW}.slice:cri-containerd:{ID}",
        ALL,
    ),
    "seen from another cgroup namespace": (f"/../../pods/..{CGROUPFS}/{ID}", ALL),
    # An inner kubelet, or any other program in the pod, may choose names below its cgroup.
    "the outermost pod counts": (f"{CGROUPFS}/{ID}/kubelet/kubepods/pod{OTHER}/{OTHER_ID}", ALL),
    "a container that names a folder as a pod": (f"{CGROUPFS}/{ID}/kubepods-pod{LOW.replace('1', '2')}.slice", ALL),
    "the root": ("/", None),
    "nothing": ("", None),
    "a service": ("/system.slice/sshd.service", None),
    "kubelet's own": ("/kubepods/burstable", None),
    "a pod elsewhere": (f"/user.slice/pod{UID}/{ID}", None),
    "a uid that is none": (f"/kubepods/podapp/{ID}", None),
    "a slice that ends otherwise": (f"/kubepods.slice/kubepods-pod{LOW}.slicer/{ID}", None),
    "an id that is too short": (f"{CGROUPFS}/4f1e", CgroupOwner(UID)),
    "podman's pod": (f"/machine.slice/machine-libpod_pod_{ID}.slice/libpod-{ID}.scope", None),
}


@pytest.mark.parametrize(("path", "want"), OWNERS.values(), ids=OWNERS)
def test_cgroup_path_is_parsed_to_its_pod_and_container(path: str, want: CgroupOwner | None) -> None:
    assert parse_owner(path) == want


SEEN_BY_THE_AGENT = {
    # Its own cgroup is the root of what it sees: both pods' folder is two above it.
    "cgroupfs, of the agent's class": (f"/../../pod{UID}/{ID}", ALL),
    "cgroupfs, of another class": (f"/../../../besteffort/pod{UID}/{ID}", ALL),
    "systemd, of the agent's class": (f"/../../{SYSTEMD.rpartition('/')[2]}/cri-containerd-{ID}.scope", ALL),
    "the agent's own": ("/", None),
}


@pytest.mark.parametrize(("path", "want"), SEEN_BY_THE_AGENT.values(), ids=SEEN_BY_THE_AGENT)
def test_cgroup_path_from_another_namespace_is_parsed_to_pod_and_container(path: str, want: CgroupOwner | None) -> None:
    assert parse_owner(path) == want


PROCESSES = {
    "v2": (f"0::{SYSTEMD}/cri-containerd-{ID}.scope\n", ALL),
    "v1": (f"4:memory:{CGROUPFS}/{ID}\n1:name=systemd:{CGROUPFS}/{ID}\n", ALL),
    "hybrid": (f"4:memory:{CGROUPFS}/{ID}\n0::/system.slice/containerd.service\n", ALL),
    "colons": (f"0::/x.service/kubepods-pod{LOW}.slice:cri-containerd:{ID}\n", ALL),
    "no pod": ("4:memory:/user.slice\n0::/\n", None),
    "nothing": ("", None),
}


@pytest.mark.parametrize(("text", "want"), PROCESSES.values(), ids=PROCESSES)
def test_a_process_is_in_the_pod_of_its_cgroup(tmp_path: Path, text: str, want: CgroupOwner | None) -> None:
    (tmp_path / "7").mkdir()
    (tmp_path / "7" / "cgroup").write_text(text)
    assert find_process_owner(7, tmp_path) == want


NAMED_BY_TENANTS = {
    "no UTF-8": f"0::{SYSTEMD}/cri-containerd-{ID}.scope/\xff\xfe\n",
    "what some take for the end of a line": f"0::{SYSTEMD}/cri-containerd-{ID}.scope/a\x0bb\x0cc\x1cd\x85e\n",
    "a pod's path behind such an end": f"9:cpu:/\n0::{CGROUPFS}/{ID}/a\x0b0::/kubepods/pod{OTHER}/{OTHER_ID}\n",
}


@pytest.mark.parametrize("text", NAMED_BY_TENANTS.values(), ids=NAMED_BY_TENANTS)
def test_a_tenants_cgroup_names_cannot_change_its_identity(tmp_path: Path, text: str) -> None:
    """The kernel accepts every byte except a slash and a newline."""
    (tmp_path / "7").mkdir()
    (tmp_path / "7" / "cgroup").write_bytes(text.encode("latin-1"))
    assert find_process_owner(7, tmp_path) == ALL


def test_ended_process_belongs_to_no_pod(tmp_path: Path) -> None:
    assert find_process_owner(7, tmp_path) is None


@dataclass(frozen=True)
class Tree:
    """A mounted tree, and where pods live in it."""

    mount: Path
    pods: Path


@pytest.fixture(params=["v2", "v1", "hybrid"])
def tree(request: pytest.FixtureRequest, tmp_path: Path) -> Tree:
    if request.param == "v2":
        (tmp_path / "cgroup.controllers").write_text("cpu memory\n")
        return Tree(tmp_path, tmp_path)
    for hierarchy in ("memory", "cpu,cpuacct", "systemd"):
        (tmp_path / hierarchy).mkdir()
    if request.param == "hybrid":
        (tmp_path / "unified").mkdir()
        (tmp_path / "unified" / "cgroup.controllers").write_text("\n")
    return Tree(tmp_path, tmp_path / "memory")


def test_only_a_wholly_unified_tree_is_v2(tree: Tree) -> None:
    assert CgroupTree(tree.mount).version == (2 if tree.pods == tree.mount else 1)


FOUND = {name: path for name, (path, want) in OWNERS.items() if want == ALL and path.endswith((ID, f"{ID}.scope"))}
NOT_LOOKED_FOR = {
    "a systemd name with a cgroupfs runtime": "has no folder of the pod's",
    "seen from another cgroup namespace": "is no path of a mounted tree",
}


@pytest.mark.parametrize("path", [path for name, path in FOUND.items() if name not in NOT_LOOKED_FOR])
def test_the_folders_of_pod_and_container_are_found(tree: Tree, path: str) -> None:
    folder = tree.pods / path[1:]
    folder.mkdir(parents=True)
    for noise in (f"system.slice/x.service/{OTHER_ID}", f"kubepods/pod{OTHER}/{OTHER_ID}", "kubepods/besteffort"):
        (tree.pods / noise).mkdir(parents=True, exist_ok=True)
    cgroups = CgroupTree(tree.mount)
    assert cgroups.find_pod_cgroup(UID) == folder.parent
    assert cgroups.find_container_cgroup(UID, ID) == folder
    assert cgroups.find_container_cgroup(UID, OTHER_ID) is None
    assert cgroups.find_pod_cgroup("00000000-77ab-4c0d-9e1f-0242ac110002") is None


def test_pod_cgroup_is_found_while_it_exists(tree: Tree) -> None:
    cgroups = CgroupTree(tree.mount)
    assert cgroups.find_pod_cgroup(UID) is None
    assert cgroups.find_container_cgroup(UID, ID) is None
    pod = tree.pods / CGROUPFS[1:]
    pod.mkdir(parents=True)
    assert cgroups.find_pod_cgroup(UID) == pod
    pod.rmdir()
    assert cgroups.find_pod_cgroup(UID) is None
    moved = tree.pods / SYSTEMD[1:]
    moved.mkdir(parents=True)
    assert cgroups.find_pod_cgroup(UID) == moved


def test_pods_of_a_nested_kubelet_are_not_found(tree: Tree) -> None:
    (tree.pods / CGROUPFS[1:] / ID / "kubelet" / "kubepods" / f"pod{OTHER}").mkdir(parents=True)
    assert CgroupTree(tree.mount).find_pod_cgroup(OTHER) is None


def test_cgroup_path_sent_by_the_hook_is_resolved_to_its_folder(tree: Tree) -> None:
    hierarchy = "unified" if tree.pods == tree.mount else "memory"
    (tree.pods / CGROUPFS[1:]).mkdir(parents=True)
    assert CgroupTree(tree.mount).get_folder(hierarchy, CGROUPFS) == tree.pods / CGROUPFS[1:]


def test_v1_hierarchy_on_a_v2_node_is_refused(tmp_path: Path) -> None:
    (tmp_path / "cgroup.controllers").write_text("memory\n")
    with pytest.raises(LimitError, match="cgroup v2 only"):
        CgroupTree(tmp_path).get_folder("memory", "/a")


STRAY = [
    ("unified", "/../a"),
    ("unified", "/a/../../b"),
    ("unified", "a"),
    ("unified", "/"),
    ("unified", ""),
    ("../memory", "/a"),
    ("..", "/a"),
    ("", "/a"),
]


@pytest.mark.parametrize(("hierarchy", "path"), STRAY)
def test_path_that_escapes_the_cgroup_tree_is_refused(tree: Tree, hierarchy: str, path: str) -> None:
    (tree.mount.parent / "a").mkdir(exist_ok=True)
    (tree.mount / "a").mkdir()
    with pytest.raises(LimitError):
        CgroupTree(tree.mount).get_folder(hierarchy, path)


def test_a_missing_cgroup_is_reported_with_its_path(tree: Tree) -> None:
    with pytest.raises(LimitError, match="is the host's cgroup tree mounted at"):
        CgroupTree(tree.mount).get_folder("unified", "/kubepods/gone")
