"""Single pods, read from and written to the API server; the ledger learns from every answer."""

from __future__ import annotations

from collections.abc import Callable

from extender.state.host_usage import HostUsage
from extender.state.ledger import Ledger
from vrampack.cards import well_known
from vrampack.cards.pod import Pod
from vrampack.kube.client import Api
from vrampack.kube.errors import NoAnswerError
from vrampack.kube.objects import PodObject, to_pod
from vrampack.kube.timestamps import format_time


class PodClient:
    """The pods of one ledger. `clock` is that of the deadlines, `started_ns` the Unix time at which this process began."""

    def __init__(
        self,
        ledger: Ledger,
        api: Api,
        *,
        resource: str,
        clock: Callable[[], float],
        started_ns: int,
        hosts: HostUsage,
    ) -> None:
        self._ledger = ledger
        self._hosts = hosts
        self._api = api
        self._resource = resource
        self._clock = clock
        self._started_ns = started_ns
        self._retries = 0

    async def get_pod(self, pod: Pod, deadline: float) -> Pod | None:
        """The pod of this name as the API server has it now; it may have another uid.

        Raises `NoAnswerError` or `RefusedError`.
        """
        obj = await self._api.get_pod(pod.namespace, pod.name, timeout_seconds=self._get_remaining(deadline))
        return None if obj is None else self._learn_answer(pod, obj)

    async def get_known_pod(self, pod: Pod, deadline: float) -> Pod | None:
        """`get_pod` for a pod that the API server itself showed before; a pod that is gone is released, and None returned.

        Never use it for a pod that only a call names: a call with another pod's uid must not free what that pod holds.
        """
        seen = await self.get_pod(pod, deadline)
        if seen is not None and seen.uid == pod.uid:
            return seen
        self._ledger.remove_pod(pod.uid)
        return None

    async def request_retry(self, pod: Pod, deadline: float) -> Pod:
        """Give the pod a new version, which makes the scheduler try it again. Returns the pod as it is then.

        The annotation's value was never used before, so every call makes a new version. Raises `RefusedError` when
        nothing was written, `NoAnswerError` when that is not known.
        """
        self._retries += 1
        obj = await self._api.patch_pod_status(
            pod.namespace,
            pod.name,
            pod.uid,
            {well_known.RETRY_ANNOTATION: f"{self._started_ns}-{self._retries}"},
            timeout_seconds=self._get_remaining(deadline),
        )
        return self._learn_answer(pod, obj)

    async def nominate(self, pod: Pod, node_name: str, deadline: float) -> None:
        """Nominate the pod to the node, or end its nomination, so that the scheduler and every extender keep its place.

        Raises as `request_retry`.
        """
        seconds = self._get_remaining(deadline)
        obj = await self._api.nominate_pod(pod.namespace, pod.name, pod.uid, node_name, timeout_seconds=seconds)
        self._learn_answer(pod, obj)

    async def write_answer(self, pod: Pod, reason: str, text: str, *, now: float, deadline: float) -> None:
        """Say on the pod why it was refused. `now` is Unix time. Raises as `request_retry`."""
        condition = {
            "type": well_known.PLACEMENT_CONDITION,
            "status": "False",
            "reason": reason,
            "message": text,
            "lastTransitionTime": format_time(now),
        }
        seconds = self._get_remaining(deadline)
        obj = await self._api.patch_pod_condition(pod.namespace, pod.name, pod.uid, condition, timeout_seconds=seconds)
        self._learn_answer(pod, obj)

    def _learn_answer(self, pod: Pod, obj: PodObject) -> Pod:
        """Update the ledger if it still knows the pod: an answer that a deletion overtook must not bring it back."""
        label_keys, host = self._ledger.label_keys, self._hosts.read_request(obj.spec)
        seen = self._ledger.in_force.resolve_pod(to_pod(obj, resource=self._resource, label_keys=label_keys, host=host))
        if seen.uid == pod.uid and self._ledger.get_pod(pod.uid) is not None:
            self._ledger.update_fetched_pod(seen)
        return seen

    def _get_remaining(self, deadline: float) -> float:
        remaining = deadline - self._clock()
        if remaining <= 0:
            raise NoAnswerError("the deadline passed")
        return remaining
