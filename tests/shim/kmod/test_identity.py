"""A file belongs to the container in which it was opened, whichever process has it later, and whatever becomes of the container."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.fakes.driver.driver import MIB
from tests.machine.program import GuestStart
from tests.shim.kmod.world import CGROUPS, KmodWorld
from tests.support.limit_cases import REFUSED
from tests.support.polling import wait_until

LIMIT = {0: 4301}
EVERYTHING = (1 << 41) - 1
"""A mask of all capabilities there are."""
ORDINARY = 0
"""Of a container that was given none."""


@pytest.fixture(autouse=True)
def ends_empty(world: KmodWorld) -> Iterator[None]:
    yield
    wait_until(lambda: world.driver().cards[0].used == 0, what="what the driver still has given out")
    world.forget()


def test_a_process_started_in_the_container_later_has_its_limit(world: KmodWorld) -> None:
    """As `kubectl exec` does it: another process, put into the cgroup."""
    place = world.limited("a", LIMIT)
    with place.running("app", "--hold", "4000") as app:
        app.wait_for_line("holding")
        assert place.run("app", "302").lines == [REFUSED]


def test_a_nested_container_has_the_limit_of_the_outer_one(world: KmodWorld) -> None:
    """A cgroup below, two levels deep; a pid namespace and a user namespace of its own change nothing."""
    world.limited("a", LIMIT)
    nested = world.unlimited("a/docker/inner")
    for place in (nested, nested.inside(has_own_pid_namespace=True), nested.inside(has_own_user_namespace=True)):
        assert place.run("app", "4302").lines == [REFUSED]
        assert place.run("app", "4300").lines == ["allocated 4300 MiB"]


def test_the_nearest_of_two_limits_holds(world: KmodWorld) -> None:
    """The pod has one, and one of its containers has its own."""
    world.limited("pod", {0: 4000})
    refined = world.limited("pod/one", {0: 1000})
    other = world.unlimited("pod/two")
    assert refined.run("app", "1000", "--then", "1").lines == ["allocated 1000 MiB", REFUSED]
    assert other.run("app", "4000", "--then", "1").lines == ["allocated 4000 MiB", REFUSED]


def test_a_child_that_inherits_the_file_keeps_the_charge_and_the_limit(world: KmodWorld) -> None:
    """CUDA's file outlives its process in a child, and the driver's memory with it."""
    place = world.limited("a", LIMIT)
    with place.running("app", "--fork", "4000") as app:
        app.wait_for_line("holding")
        assert world.card("a").used == 4000 * MIB
        assert place.run("app", "302").lines == [REFUSED]
        for pid in world.pids("a"):
            world.kill(pid)
        app.wait_for_end()
    # Only the parent and the child's last line were awaited: the child's files may not be closed yet.
    wait_until(lambda: world.card("a").used == 0, what="the end of the child's file")


def test_a_program_that_calls_exec_starts_without_a_charge(world: KmodWorld) -> None:
    """Exec closes CUDA's file, which takes the memory with it."""
    place = world.limited("a", LIMIT)
    ended = place.run("steps", "open", "take", "4000", "exec", "open", "take", "4300")
    assert ended.lines == ["allocated 4000 MiB", "allocated 4300 MiB"]


def test_a_file_passed_out_of_the_container_stays_limited(world: KmodWorld) -> None:
    """By a socket, to a process outside any container: what that allocates through the file still counts for the first."""
    place = world.limited("a", LIMIT)
    with place.running("steps", "open", "take", "3000", "send", "/tmp/held", "wait") as giver:
        giver.wait_for_line("listening")
        out = world.host().run("steps", "receive", "/tmp/held", "take", "1302", "take", "1300")
        assert out.lines[-2:] == [REFUSED, "allocated 1300 MiB"]
        giver.kill()
        giver.wait_for_end()


def test_a_file_passed_out_of_the_container_outlives_its_opener(world: KmodWorld) -> None:
    place = world.limited("a", LIMIT)
    with place.running("steps", "open", "take", "3000", "send", "/tmp/passed", "wait") as giver:
        giver.wait_for_line("listening")
        with world.host().running("steps", "receive", "/tmp/passed", "wait", "take", "1302") as taker:
            taker.wait_for_line("waiting")
            giver.kill()
            giver.wait_for_end()
            assert world.card("a").used == 3000 * MIB
            taker.resume()
            assert taker.wait_for_end().lines[-1] == REFUSED
    assert world.card("a").used == 0


def test_a_removed_instance_limits_its_old_processes_and_no_new_ones(world: KmodWorld) -> None:
    place = world.limited("a", LIMIT)
    with place.running("steps", "open", "take", "3000", "wait", "take", "1302", "take", "1300", "wait") as program:
        program.wait_for_line("waiting")
        world.command("remove a")
        assert "a" not in world.machine.names("/proc/cgpu_km/0")
        program.resume()
        program.wait_for_line(REFUSED)
        program.wait_for_line("waiting")
        assert world.instances()["a"].fields["removed"] == "1"
        assert place.run("app", "5000").lines == ["allocated 5000 MiB"]
    wait_until(lambda: "a" not in world.instances(), what="the end of the last file")


def test_an_instance_name_that_is_added_again_keeps_its_budget(world: KmodWorld) -> None:
    """A container that is recreated: the old one's files still count until they are closed."""
    first = world.limited("one", LIMIT)
    with first.running("app", "--hold", "4000") as app:
        app.wait_for_line("holding")
        second = world.unlimited("two")
        identity = world.machine.inode(f"{CGROUPS}/two")
        world.command(f"add one cgroup={identity} 0={4301 * MIB}")
        assert second.run("app", "302").lines == [REFUSED]
        app.kill()
        app.wait_for_end()
    assert second.run("app", "4300").lines == ["allocated 4300 MiB"]


def test_a_recreated_cgroup_of_the_same_name_has_no_limit(world: KmodWorld) -> None:
    """The id has 64 bits and is never reused, though the folder's name is."""
    world.limited("fleeting", LIMIT)
    before = world.machine.inode(f"{CGROUPS}/fleeting")
    world.machine.rmdir(f"{CGROUPS}/fleeting")
    again = world.unlimited("fleeting")
    assert world.machine.inode(f"{CGROUPS}/fleeting") != before
    assert again.run("app", "5000").lines == ["allocated 5000 MiB"]


def test_an_honest_program_in_a_privileged_container_is_limited(world: KmodWorld) -> None:
    """With every capability, and device nodes of its own making."""
    place = world.limited("a", LIMIT).inside(capabilities=EVERYTHING)
    assert place.run("app", "4302").lines == [REFUSED]
    world.machine.mkdir("/tmp/own")
    for name, minor in (("nvidiactl", 255), ("nvidia0", 0)):
        world.machine.mknod(f"/tmp/own/{name}", 195, minor)
    assert place.run("app", "--control", "/tmp/own/nvidiactl", "4302").lines == [REFUSED]
    assert place.run("app", "--control", "/tmp/own/nvidiactl", "4300").lines == ["allocated 4300 MiB"]


@pytest.mark.parametrize("kind", ["40", "C2"])
def test_a_window_on_the_whole_card_is_refused_to_a_privileged_container(world: KmodWorld, kind: str) -> None:
    """RM_ALLOC_MEMORY on /dev/nvidiaN: the driver would give it to an administrator. Other classes are not our concern."""
    place = world.limited("a", LIMIT).inside(capabilities=EVERYTHING)
    given = world.host().run("steps", "open", "host", kind)
    refused = place.run("steps", "open", "host", kind)
    assert refused.lines != given.lines
    assert "0x1b" in refused.out or "0x56" in refused.out
    assert world.state()["cards"] == "watched"
    assert place.run("steps", "open", "host", "3E").lines == world.host().run("steps", "open", "host", "3E").lines
    assert ("nvidia0", "other") not in world.tables()


def test_limits_apply_by_pid_namespace_on_cgroup_v1(old_world: KmodWorld) -> None:
    """Where there is no cgroup v2: the namespace, and those that are made in it."""
    machine = old_world.machine
    with machine.running("steps", "wait", start=GuestStart(has_own_pid_namespace=True)) as first:
        first.wait_for_line("waiting")
        old_world.command(f"add a pidns={first.pid} 0={4301 * MIB}")
        inside = GuestStart(shares_pid_namespace_of=first.pid)
        assert machine.run("app", "4302", start=inside).lines == [REFUSED]
        assert machine.run("app", "4300", start=inside).lines == ["allocated 4300 MiB"]
        assert machine.run("app", "5000").lines == ["allocated 5000 MiB"]
        assert old_world.instances()["a"].fields["pidns"].isdecimal()
    old_world.command("remove a")


def test_a_reused_namespace_number_has_no_limit(old_world: KmodWorld) -> None:
    """The numbers are reused at once; the instance refers to the namespace itself."""
    machine = old_world.machine
    with machine.running("steps", "wait", start=GuestStart(has_own_pid_namespace=True)) as first:
        first.wait_for_line("waiting")
        old_world.command(f"add a pidns={first.pid} 0={4301 * MIB}")
    for _ in range(5):
        assert machine.run("app", "5000", start=GuestStart(has_own_pid_namespace=True)).lines == ["allocated 5000 MiB"]
    old_world.command("remove a")


@pytest.fixture
def denied_root(world: KmodWorld) -> int:
    """The id of a cgroup like kubelet's, below which unknown containers get nothing."""
    world.unlimited("kubepods")
    identity = world.machine.inode(f"{CGROUPS}/kubepods")
    world.command(f"deny unknown cgroup={identity} 0 1 2")
    return identity


def test_an_unknown_container_below_a_denied_cgroup_gets_nothing(world: KmodWorld, denied_root: int) -> None:
    """Before `deny` and after `remove` it passes; a container that is added gets its limit, and one elsewhere passes."""
    assert world.state()["unknown"] == "denied"
    assert world.instances()["unknown"].fields["deny"] == "1"
    unknown = world.unlimited("kubepods/pod-b").inside(capabilities=ORDINARY)
    assert unknown.run("app", "1").lines == [REFUSED]
    assert world.card("unknown").refused == 1
    assert world.unlimited("system").inside(capabilities=ORDINARY).run("app", "5000").lines == ["allocated 5000 MiB"]
    told = world.limited("kubepods/pod-a", LIMIT).inside(capabilities=ORDINARY)
    assert told.run("app", "4302").lines == [REFUSED]
    assert told.run("app", "4300").lines == ["allocated 4300 MiB"]
    world.command(f"deny unknown cgroup={denied_root} 0")
    world.command("remove unknown")
    assert world.state()["unknown"] == "passed"
    assert unknown.run("app", "5000").lines == ["allocated 5000 MiB"]


@pytest.mark.usefixtures("denied_root")
def test_a_container_that_is_added_later_gets_its_limit(world: KmodWorld) -> None:
    late = world.unlimited("kubepods/pod-late").inside(capabilities=ORDINARY)
    assert late.run("app", "1").lines == [REFUSED]
    world.add("kubepods/pod-late", {0: 4301 * MIB})
    assert late.run("app", "4300").lines == ["allocated 4300 MiB"]


@pytest.mark.usefixtures("denied_root")
def test_a_process_with_cap_sys_admin_is_not_denied(world: KmodWorld) -> None:
    """The agent, the driver's own pods: with CAP_SYS_ADMIN they pass, and may send commands, though none of them was added."""
    agent = world.unlimited("kubepods/pod-agent").inside(capabilities=EVERYTHING)
    assert agent.run("app", "5000").lines == ["allocated 5000 MiB"]
    world.limited("kubepods/pod-a", LIMIT)
    world.command("remove kubepods.pod-a", start=agent.start)
    limited = world.limited("kubepods/pod-a", LIMIT).inside(capabilities=EVERYTHING)
    assert limited.run("app", "4302").lines == [REFUSED]


@pytest.mark.parametrize("command", ["deny unknown pidns=1 0", "deny unknown cgroup={} 0=5", "deny unknown cgroup={}"])
def test_a_malformed_deny_changes_nothing(world: KmodWorld, command: str) -> None:
    world.unlimited("kubepods")
    with pytest.raises(OSError, match="Invalid argument"):
        world.command(command.format(world.machine.inode(f"{CGROUPS}/kubepods")))
    assert world.state()["unknown"] == "passed"
