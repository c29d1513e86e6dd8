"""/proc/cgpu_km: what it shows, who may read and write it, and what is refused, each with its own error."""

from __future__ import annotations

import errno
from collections.abc import Iterator

import pytest

from tests.fakes.driver.driver import MIB
from tests.machine.program import GuestStart
from tests.shim.kmod.world import CGROUPS, CONTROL, NODES, KmodWorld, fails_with

LIMIT_BYTES = 4301 * MIB
ADMIN = 1 << 21
EVERYTHING = (1 << 41) - 1
NODE = f"{NODES}/0/a"


@pytest.fixture(autouse=True)
def ends_empty(world: KmodWorld) -> Iterator[None]:
    yield
    world.forget()


def test_the_proc_files_have_the_documented_content(world: KmodWorld) -> None:
    world.limited("a", {0: 4301}, weight=3)
    names = world.machine.names(NODES)
    assert {"version", "major", "state", "default_memsize", "inst_ctl", "0"} <= set(names)
    assert set(world.machine.names(f"{NODES}/0")) == {"max_inst", "max_groups", "policy", "a"}
    assert set(world.machine.names(NODE)) == {"id", "memsize", "meminfo"}
    assert world.node("major") == "0\n"
    assert world.node("0/max_inst") == "16\n"
    assert world.node("0/max_groups") == "64\n"
    assert world.node("0/policy") == "5\n"
    assert world.node("0/a/memsize") == f"{LIMIT_BYTES}\n"
    assert world.node("0/a/meminfo") == f"Free: {LIMIT_BYTES}\n"
    assert int(world.node("0/a/id")) >= 1
    assert world.instances()["a"].fields["weight"] == "3"
    state = world.state()
    assert state["attached"] == "yes"
    assert state["driver"] == "580.95.05"
    assert state["layout"] == "two devices"
    assert state["uvm"] == "guarded"
    assert state["files"] == "0"


def test_the_version_is_that_of_the_package(world: KmodWorld) -> None:
    version = world.node("version").strip()
    assert version == _version()


def test_ids_are_not_used_again(world: KmodWorld) -> None:
    world.limited("a", {0: 100})
    before = int(world.node("0/a/id"))
    world.command("remove a")
    world.limited("a", {0: 100})
    assert int(world.node("0/a/id")) > before


def test_default_memsize_applies_when_no_size_is_given(world: KmodWorld) -> None:
    world.unlimited("a")
    identity = world.machine.inode(f"{CGROUPS}/a")
    with fails_with(errno.EINVAL):
        world.command(f"add a cgroup={identity} 0")
    world.machine.write(f"{NODES}/default_memsize", f"{7 * MIB}\n")
    world.command(f"add a cgroup={identity} 0")
    assert world.node("0/a/memsize") == f"{7 * MIB}\n"
    for wrong in ("0", "-1", "x", "", "18446744073709551616"):
        with fails_with(errno.EINVAL):
            world.machine.write(f"{NODES}/default_memsize", f"{wrong}\n")
    assert world.node("default_memsize") == f"{7 * MIB}\n"


def test_instances_beyond_the_maximum_of_a_card_are_refused(world: KmodWorld) -> None:
    world.command("cards 0 1")
    world.machine.write(f"{NODES}/1/max_inst", "2\n")
    for name in ("a", "b"):
        world.limited(name, {1: 10})
    with fails_with(errno.ENOSPC):
        world.limited("c", {1: 10})
    world.command("remove a")
    world.limited("c", {1: 10})
    for wrong in ("0", "26", "x"):
        with fails_with(errno.EINVAL):
            world.machine.write(f"{NODES}/1/max_inst", f"{wrong}\n")
    world.machine.write(f"{NODES}/1/max_inst", "16\n")


def test_a_policy_that_would_share_compute_is_not_supported(world: KmodWorld) -> None:
    world.command("cards 0")
    for policy in range(5):
        with fails_with(errno.EOPNOTSUPP):
            world.machine.write(f"{NODES}/0/policy", f"{policy}\n")
    for wrong in ("6", "-1", "x"):
        with fails_with(errno.EINVAL):
            world.machine.write(f"{NODES}/0/policy", f"{wrong}\n")
    world.machine.write(f"{NODES}/0/policy", "5\n")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "\n",
        "add",
        "add a",
        "add a cgroup=ID",
        "add a 0=1048576",
        "add a cgroup=0 0=1048576",
        "add a cgroup=-1 0=1048576",
        "add a cgroup=18446744073709551616 0=1048576",
        "add a cgroup=ID 0=",
        "add a cgroup=ID 0=0x10",
        "add a cgroup=ID 0=-5",
        "add a cgroup=ID 0=18446744073709551616",
        "add a cgroup=ID 32=1048576",
        "add a cgroup=ID 4294967296=1048576",
        "add a cgroup=ID 0=1048576 0=2097152",
        "add a cgroup=ID 0=1048576 weight=0",
        "add a cgroup=ID 0=1048576 weight=17",
        "add a cgroup=ID 0=1048576 colour=1",
        "add a cgroup=ID pidns=1 0=1048576",
        "add a  cgroup=ID 0=1048576",
        "add a/b cgroup=ID 0=1048576",
        "add ../a cgroup=ID 0=1048576",
        "add .a cgroup=ID 0=1048576",
        "add " + "a" * 128 + " cgroup=ID 0=1048576",
        "add a cgroup=ID 0=1048576\nadd b cgroup=ID 0=1048576",
        "remove",
        "remove a b",
        "cards",
        "cards x",
        "cards 32",
        "detach now",
        "ADD a cgroup=ID 0=1048576",
        "attach\0",
        "x" * 5000,
    ],
)
def test_malformed_commands_are_refused_and_change_nothing(world: KmodWorld, text: str) -> None:
    world.unlimited("a")
    before = world.instances()
    with fails_with(errno.EINVAL):
        world.machine.write(CONTROL, text.replace("ID", str(world.machine.inode(f"{CGROUPS}/a"))))
    assert world.instances() == before


def test_invalid_commands_and_sizes_are_refused(world: KmodWorld) -> None:
    with fails_with(errno.ENOENT):
        world.command("remove nobody")
    with fails_with(errno.ESRCH):
        world.command("add a pidns=99999 0=1048576")
    world.limited("a", {0: 100})
    with fails_with(errno.EEXIST):
        world.command(f"add b cgroup={world.machine.inode(f'{CGROUPS}/a')} 0=1048576")
    for wrong in ("-1", "x", "", "1.5", "18446744073709551616"):
        with fails_with(errno.EINVAL):
            world.machine.write(f"{NODE}/memsize", f"{wrong}\n")
    assert world.node("0/a/memsize") == f"{100 * MIB}\n"


@pytest.mark.parametrize("path", [CONTROL, f"{NODE}/memsize", f"{NODES}/0/max_inst", f"{NODES}/default_memsize"])
def test_only_an_administrator_of_the_machine_can_write(world: KmodWorld, path: str) -> None:
    """Not root without the capability, not root of a user namespace, not another user with all capabilities, and no limited container."""
    limited = world.limited("a", {0: 4301})
    before = world.machine.read(path) if path != CONTROL else ""
    for start in (
        GuestStart(capabilities=EVERYTHING & ~ADMIN),
        GuestStart(has_own_user_namespace=True),
        GuestStart(uid=1000),
    ):
        with pytest.raises(PermissionError):
            world.machine.write(path, "7\n", start=start)
    with pytest.raises(PermissionError):
        world.machine.write(path, "remove a\n" if path == CONTROL else "7\n", start=limited.start)
    with pytest.raises(PermissionError):
        world.machine.write(path, "7\n", start=limited.inside(has_own_pid_namespace=True).start)
    assert "a" in world.instances()
    assert before in ("", world.machine.read(path))


def test_usage_of_other_containers_is_not_readable(world: KmodWorld) -> None:
    """Neither a limited container's, privileged or not, nor root's without the capability."""
    mine = world.limited("a", {0: 4301})
    readers = (
        mine.start,
        mine.inside(has_own_pid_namespace=True).start,
        GuestStart(capabilities=EVERYTHING & ~ADMIN),
        GuestStart(uid=1000),
    )
    for start in readers:
        for path in ("0/a/meminfo", "0/a/memsize", "0/policy", "inst_ctl", "state"):
            with pytest.raises(PermissionError):
                world.node(path, start=start)
        assert world.node("version", start=start) == world.node("version")


def test_files_can_be_read_while_their_instance_is_removed(world: KmodWorld) -> None:
    """No task hangs, and nothing that is gone is read."""
    for _ in range(20):
        world.limited("a", {0: 4301})
        reading = [world.machine.start("call", "read", f"{NODE}/meminfo") for _ in range(3)]
        world.command("remove a")
        for program in reading:
            ended = program.wait_for_end()
            assert ended.code in {0, errno.ENOENT, errno.EIO, errno.ESRCH}
            assert ended.out in {"", f"Free: {LIMIT_BYTES}\n"}


def _version() -> str:
    from importlib.metadata import version  # noqa: PLC0415

    return version("vrampack")
