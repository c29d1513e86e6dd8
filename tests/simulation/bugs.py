"""Bugs that the simulation must find: each is one line of the product, as somebody might write it one day."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from extender.scheduling.bind_outcome import BOUND_OUTCOME, BindOutcome, StaleBinding
from extender.scheduling.binding import Binder
from extender.scheduling.binding_fence import BindingFence
from extender.scheduling.named_places import NamedPlaces
from extender.state.ledger import Ledger
from extender.state.places import HeldPlace, Places, Reservation
from extender.state.pod_client import PodClient
from extender.state.relist_baseline import RelistBaseline
from extender.state.sync import Freshness, PodSink
from policies.engine.cluster_shapes import ClusterShapes
from tests.simulation.api import SimulatedApi
from vrampack.cards.allocation import Allocation
from vrampack.cards.pod import Pod
from vrampack.cards.records import Record
from vrampack.kube.errors import NoAnswerError, RefusedError, UnknownPathError
from vrampack.kube.objects import PodObject, to_pod
from vrampack.kube.reflector import Reflector
from vrampack.simulator.resource_kinds import Object

Patch = pytest.MonkeyPatch


def forget_when_no_answer_came(patch: Patch) -> None:
    """The Binding may still land, on a place that somebody else got meanwhile."""
    patch.setattr(Ledger, "mark_unconfirmed", Ledger.forget)


def keep_the_place_of_a_refused_pod(patch: Patch) -> None:
    """A definite no frees the place, and nothing else does while the pod waits."""
    patch.setattr(Ledger, "forget", lambda *_: None)


def keep_the_place_of_a_deleted_pod(patch: Patch) -> None:
    patch.setattr(PodSink, "on_deleted", lambda *_: None)


def keep_what_a_list_lacks(patch: Patch) -> None:
    """What was deleted while the watch was down stays for ever."""
    patch.setattr(Ledger, "end_list", lambda *_: None)


def free_a_leaving_pod(patch: Patch) -> None:
    """It has a deletionTimestamp and runs on for its grace period."""
    put = Ledger._put_pod
    patch.setattr(
        Ledger, "_put_pod", lambda self, pod: self.remove_pod(pod.uid) if pod.is_terminating else put(self, pod)
    )


def count_the_reservation_and_the_record(patch: Patch) -> None:
    patch.setattr(Ledger, "_end_places", lambda *_: set())


def confirm_by_the_reply(patch: Patch) -> None:
    """The reservation ends with the reply, the record counts from the watch on: in between, nothing does."""
    post = Binder._post_binding

    async def confirmed(
        self: Binder, pod: Pod, node_name: str, record: dict[str, str], deadline: float
    ) -> BindOutcome | StaleBinding:
        outcome = await post(self, pod, node_name, record, deadline)
        if outcome is BOUND_OUTCOME:
            self._ledger.release_place(pod.uid, node_name)
        return outcome

    patch.setattr(Binder, "_post_binding", confirmed)


def confirm_by_the_uid_alone(patch: Patch) -> None:
    """Any event of the pod confirms, whether it shows it bound or not."""
    put = Ledger._put_pod

    def confirmed(self: Ledger, pod: Pod) -> None:
        put(self, pod)
        self._release_places(self.places.list_places_of(pod.uid), "failed")

    patch.setattr(Ledger, "_put_pod", confirmed)


def take_silence_for_a_no(patch: Patch) -> None:
    async def refused(self: Binder, pod: Pod, node_name: str, silence: NoAnswerError, deadline: float) -> BindOutcome:
        return BindOutcome("refused", f"pod {pod}: {silence}; nothing was bound")

    patch.setattr(Binder, "_resolve_no_answer", refused)


def take_silence_for_a_yes(patch: Patch) -> None:
    async def bound(self: Binder, pod: Pod, node_name: str, silence: NoAnswerError, deadline: float) -> BindOutcome:
        return BOUND_OUTCOME

    patch.setattr(Binder, "_resolve_no_answer", bound)


def reserve_after_the_reply(patch: Patch) -> None:
    """Two binds at once decide on the same free card."""
    waiting: dict[int, list[tuple[Pod, str, Allocation]]] = {}
    assume, post = Ledger.assume, Binder._post_binding

    def later(self: Ledger, pod: Pod, node_name: str, allocation: Allocation) -> None:
        waiting.setdefault(id(self), []).append((pod, node_name, allocation))

    async def posted(
        self: Binder, pod: Pod, node_name: str, record: dict[str, str], deadline: float
    ) -> BindOutcome | StaleBinding:
        mine = waiting.pop(id(self._ledger), [])
        outcome = await post(self, pod, node_name, record, deadline)
        for each in mine:
            assume(self._ledger, *each)
        return outcome

    patch.setattr(Ledger, "assume", later)
    patch.setattr(Binder, "_post_binding", posted)


def believe_an_older_event(patch: Patch) -> None:
    """The watch is behind what a look-up showed, and undoes it."""
    patch.setattr(Pod, "is_older_than", lambda *_: False)


def believe_a_list_that_a_look_up_overtook(patch: Patch) -> None:
    patch.setattr(Ledger, "update_listed_pod", Ledger._put_pod)


def believe_a_look_up_that_the_watch_overtook(patch: Patch) -> None:
    """Found by the simulation in the product itself: a pod came back to life, and held its card for ever."""

    def learn_answer(self: PodClient, _: Pod, obj: PodObject) -> Pod:
        seen = to_pod(obj)
        self._ledger.update_fetched_pod(seen)
        return seen

    patch.setattr(PodClient, "_learn_answer", learn_answer)


def keep_what_was_looked_up_during_a_list(patch: Patch) -> None:
    """The other half of it."""
    ends = Ledger.end_list

    def ended(self: Ledger, before: RelistBaseline, listed: set[str]) -> None:
        ends(self, before, listed | self._fetched)

    patch.setattr(Ledger, "end_list", ended)


def bind_by_name_alone(patch: Patch) -> None:
    """Without the uid, a namesake gets the place."""
    bind = SimulatedApi._bind

    def bound(self: SimulatedApi, namespace: str, name: str, binding: Object) -> bytes:
        metadata = {key: value for key, value in binding["metadata"].items() if key not in ("uid", "resourceVersion")}
        return bind(self, namespace, name, binding | {"metadata": metadata})

    patch.setattr(SimulatedApi, "_bind", bound)


def never_look_up_a_reservation(patch: Patch) -> None:
    """A place whose Binding got no answer is kept for a pod that is gone."""

    async def nothing(self: BindingFence, reservation: Reservation, slots: asyncio.Semaphore) -> None:
        pass

    end = Places.end_place
    patch.setattr(BindingFence, "_confirm_reservation", nothing)
    patch.setattr(
        Places,
        "end_place",
        lambda self, place, how: None if how == "gone" and isinstance(place, Reservation) else end(self, place, how),
    )


def take_an_old_event_for_a_fence(patch: Patch) -> None:
    """Any event of an unbound pod frees its place, even one of the version that the Binding names."""
    patch.setattr(Reservation, "is_fenced_by", lambda self, pod: self.is_unconfirmed and not pod.node_name)


def release_what_a_look_up_shows_unbound(patch: Patch) -> None:
    """Without a new version of the pod the Binding may still land."""

    async def released(self: BindingFence, reservation: Reservation, deadline: float) -> Pod | None:
        seen = await self._pods.get_known_pod(reservation.pod, deadline)
        if seen is not None and not seen.node_name:
            self._ledger.forget(seen.uid, reservation.node_name)
        return seen

    patch.setattr(BindingFence, "fence_reservation", released)


def bind_at_any_version(patch: Patch) -> None:
    """A fenced Binding lands all the same."""
    bind = SimulatedApi.bind

    async def bound(self: SimulatedApi, *identity: Any, version: str, **more: Any) -> None:  # noqa: ANN401 - passed on
        await bind(self, *identity, **more)

    patch.setattr(SimulatedApi, "bind", bound)


def take_any_conflict_for_a_no(patch: Patch) -> None:
    """An API server answers 409 for a time-out of etcd, too."""
    conflict = Binder._resolve_conflict

    async def resolved(
        self: Binder, pod: Pod, node_name: str, refusal: RefusedError, deadline: float
    ) -> BindOutcome | StaleBinding:
        outcome = await conflict(self, pod, node_name, refusal, deadline)
        if isinstance(outcome, BindOutcome) and outcome.result == "api_error":
            self._ledger.forget(pod.uid, node_name)
        return outcome

    patch.setattr(Binder, "_resolve_conflict", resolved)


def draw_an_outline_once(patch: Patch) -> None:
    """The engine's answers are good until the node changes."""
    put = ClusterShapes.put_node
    patch.setattr(
        ClusterShapes,
        "put_node",
        lambda self, name, node: None if name in self.nodes and node else put(self, name, node),
    )


def trust_a_silent_api_server(patch: Patch) -> None:
    """Filter before both lists are complete: an empty ledger has room for everybody."""
    patch.setattr(Freshness, "find_unready_reason", lambda _: "")


def resume_after_410(patch: Patch) -> None:
    """The watch is asked for again from a version that is gone, for ever."""
    patch.setattr(Reflector, "_note_failure", lambda *_: "restart")


def skip_a_change_after_a_cut(patch: Patch) -> None:
    """The version of the next watch is one too late."""
    watch = Reflector._watch

    async def watched(self: Reflector[PodObject]) -> None:
        self._version = str(int(self._version) + 1)
        await watch(self)

    patch.setattr(Reflector, "_watch", watched)


def read_only_our_own_records(patch: Patch) -> None:
    """What somebody else bound, with an older record, holds nothing."""
    put = Ledger._put_pod

    def put_ours(self: Ledger, pod: Pod) -> None:
        is_foreign = isinstance(pod.record, Record) and not pod.record.is_ours
        if is_foreign:
            self.remove_pod(pod.uid)
        else:
            put(self, pod)

    patch.setattr(Ledger, "_put_pod", put_ours)


def free_a_written_place_when_the_bind_is_repeated(patch: Patch) -> None:
    """The repeated Binding is refused with 429 before the watch shows the first."""
    patch.setattr(Ledger, "mark_written", lambda *_: None)


def take_any_404_for_gone(patch: Patch) -> None:
    """A balancer that finds no server says 404, too."""
    call = SimulatedApi._get_object

    async def found(self: SimulatedApi, *wanted: Any) -> bytes | None:  # noqa: ANN401 - passed on
        try:
            return await call(self, *wanted)
        except UnknownPathError:
            return None

    patch.setattr(SimulatedApi, "_get_object", found)


def take_any_success_for_a_yes(patch: Patch) -> None:
    """A proxy's page of HTML comes with 200."""
    patch.setattr("vrampack.kube.answers.is_answer", lambda *_: True)


def take_any_object_for_a_list(patch: Patch) -> None:
    """A list without a version, and without objects, releases all that is held."""
    patch.setattr("vrampack.kube.list_page.is_list", lambda *_: True)


def hold_no_place(patch: Patch) -> None:
    """As before there were held places: a pod that is bound late finds its cards taken."""
    patch.setattr(NamedPlaces, "_may_bind_late", lambda *_: False)


def end_a_hold_at_any_news(patch: Patch) -> None:
    patch.setattr(HeldPlace, "is_given_up_by", lambda *_: True)


def keep_the_hold_of_a_deleted_pod(patch: Patch) -> None:
    end = Places.end_place
    patch.setattr(
        Places,
        "end_place",
        lambda self, place, how: None if how == "gone" and isinstance(place, HeldPlace) else end(self, place, how),
    )


BUGS: Mapping[str, Callable[[Patch], None]] = {
    bug.__name__.replace("_", " "): bug
    for bug in (
        forget_when_no_answer_came,
        keep_the_place_of_a_refused_pod,
        keep_the_place_of_a_deleted_pod,
        keep_what_a_list_lacks,
        free_a_leaving_pod,
        count_the_reservation_and_the_record,
        confirm_by_the_reply,
        confirm_by_the_uid_alone,
        take_silence_for_a_no,
        take_silence_for_a_yes,
        reserve_after_the_reply,
        bind_by_name_alone,
        never_look_up_a_reservation,
        take_an_old_event_for_a_fence,
        draw_an_outline_once,
        trust_a_silent_api_server,
        resume_after_410,
        skip_a_change_after_a_cut,
        read_only_our_own_records,
        free_a_written_place_when_the_bind_is_repeated,
        take_any_404_for_gone,
        take_any_success_for_a_yes,
        take_any_object_for_a_list,
        hold_no_place,
        end_a_hold_at_any_news,
        keep_the_hold_of_a_deleted_pod,
    )
}
"""Found by seeds, each in a second. The others of this file need an order of events that seeds meet too rarely:
`test_regressions.py` runs it."""
