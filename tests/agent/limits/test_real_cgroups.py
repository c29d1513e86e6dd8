"""Real cgroups of this kernel: they are made, found from both sides, and removed."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.cgroup_folders import MOUNT, CgroupFolder, list_hierarchies
from vrampack.agent.limits.cgroups import CgroupOwner, CgroupTree, find_process_owner, parse_owner

pytestmark = pytest.mark.shim


@pytest.fixture(params=list_hierarchies())
def cgroup_folder(request: pytest.FixtureRequest) -> Iterator[CgroupFolder]:
    folder = CgroupFolder(str(request.param))
    yield folder
    folder.remove()


def test_a_real_process_is_traced_to_its_pod(cgroup_folder: CgroupFolder) -> None:
    assert find_process_owner(cgroup_folder.start()) == CgroupOwner(cgroup_folder.pod_uid, cgroup_folder.container_id)


def test_a_real_cgroup_is_found_by_the_path_that_the_hook_sends(cgroup_folder: CgroupFolder) -> None:
    assert CgroupTree(MOUNT).get_folder(cgroup_folder.hierarchy, cgroup_folder.path) == cgroup_folder.folder
    assert parse_owner(cgroup_folder.path) == CgroupOwner(cgroup_folder.pod_uid, cgroup_folder.container_id)


def test_a_real_pod_is_found_by_its_uid(cgroup_folder: CgroupFolder) -> None:
    """In the tree where this kernel's kubelets keep pods; another hierarchy of a hybrid host is not searched."""
    is_kubelet_s = cgroup_folder.hierarchy == "memory" or cgroup_folder.root == MOUNT
    cgroups = CgroupTree(MOUNT)
    assert cgroups.find_pod_cgroup(cgroup_folder.pod_uid) == (cgroup_folder.folder.parent if is_kubelet_s else None)
    assert cgroups.find_container_cgroup(cgroup_folder.pod_uid, cgroup_folder.container_id) == (
        cgroup_folder.folder if is_kubelet_s else None
    )
