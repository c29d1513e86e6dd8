"""One holder of a Lease at a time, by clocks of the processes' own: who may act, from when, until when."""

from __future__ import annotations

from tests.kube.lease_server import LeaseServer
from vrampack.kube.errors import NoAnswerError
from vrampack.kube.leader_lease import LeaderLease
from vrampack.kube.objects import LeaseObject


class Process:
    """One process with its own clock."""

    def __init__(self, server: LeaseServer, identity: str) -> None:
        self.now = 0.0
        self.lease = LeaderLease(
            server, namespace="ns", name="lease", identity=identity, clock=lambda: self.now, now=lambda: 1e9
        )

    async def renew_at(self, *seconds: float) -> list[bool]:
        """Whether it may act after each of these tries."""
        held = []
        for self.now in seconds:
            await self.lease.renew()
            held.append(self.lease.is_held)
        return held


async def test_the_first_process_takes_a_free_lease_and_the_second_does_not() -> None:
    server = LeaseServer()
    one, two = Process(server, "one"), Process(server, "two")
    assert await one.renew_at(1) == [True]
    assert await two.renew_at(1) == [False]
    assert server.spec["holderIdentity"] == "one"


async def test_a_holder_that_renews_keeps_the_lease() -> None:
    server = LeaseServer()
    one, two = Process(server, "one"), Process(server, "two")
    for second in range(0, 60, 2):
        assert await one.renew_at(second) == [True]
        assert await two.renew_at(second) == [False]


async def test_a_silent_holder_stops_to_act_before_another_begins() -> None:
    server = LeaseServer()
    one, two = Process(server, "one"), Process(server, "two")
    await one.renew_at(0)
    server.fault = NoAnswerError("cut")
    assert await one.renew_at(9.9, 10) == [True, False]
    server.fault = None
    # `two` sees the last renewal only at 1, and waits 15 s from there.
    assert await two.renew_at(1, 15.9, 16) == [False, False, True]
    assert await one.renew_at(17) == [False]
    assert server.spec["leaseTransitions"] == 2


async def test_of_two_that_take_a_lease_at_once_one_is_refused() -> None:
    server = LeaseServer()
    one, two = Process(server, "one"), Process(server, "two")
    stale = await server.get_lease("ns", "lease", timeout_seconds=1)

    async def get_stale(namespace: str, name: str, *, timeout_seconds: float) -> LeaseObject | None:
        return stale

    await one.renew_at(1)
    server.get_lease = get_stale  # type: ignore[method-assign]  # both have read before either wrote
    assert await two.renew_at(1) == [False]
    assert server.spec["holderIdentity"] == "one"


async def test_a_lease_that_is_given_back_is_taken_at_once() -> None:
    server = LeaseServer()
    one, two = Process(server, "one"), Process(server, "two")
    await one.renew_at(1)
    await one.lease.release()
    assert not one.lease.is_held
    assert await two.renew_at(1) == [True]


async def test_without_the_lease_nobody_acts() -> None:
    server = LeaseServer()
    server.is_there = False
    assert await Process(server, "one").renew_at(1) == [False]
