"""The PodDisruptionBudgets that say whether a pod may be evicted now."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import msgspec

from vrampack.kube.diagnostic_client import DiagnosticApi
from vrampack.kube.errors import NoAnswerError
from vrampack.kube.objects import UNDECODABLE, ListMeta
from vrampack.simulator.resource_kinds import Object
from vrampack.simulator.selectors import matches_selector

PAGE_SIZE = 500
MAX_PAGE_BYTES = 32 << 20


class _BudgetPage(msgspec.Struct):
    metadata: ListMeta = ListMeta()
    items: list[Object] | None = None


@dataclass(frozen=True, slots=True)
class DisruptionBudget:
    """One budget, and how many pods of it may be evicted now."""

    namespace: str
    name: str
    selector: Object | None
    allowed: int

    def covers_pod(self, namespace: str, labels: Mapping[str, str]) -> bool:
        """Whether it covers such a pod. In policy/v1 an empty selector covers every pod of the namespace, a missing one none."""
        return namespace == self.namespace and self.selector is not None and matches_selector(self.selector, labels)


async def list_budgets(api: DiagnosticApi, *, timeout_seconds: float) -> list[DisruptionBudget]:
    """All budgets of the cluster. Raises `RefusedError` or `NoAnswerError`."""
    found: list[DisruptionBudget] = []
    token = ""
    while True:
        query = {"limit": str(PAGE_SIZE)} | ({"continue": token} if token else {})
        body = await api.read_path(
            "/apis/policy/v1/poddisruptionbudgets",
            resource="poddisruptionbudgets",
            query=query,
            timeout_seconds=timeout_seconds,
            max_bytes=MAX_PAGE_BYTES,
        )
        try:
            page = msgspec.json.decode(body, type=_BudgetPage)
        except UNDECODABLE as error:
            raise NoAnswerError(f"list poddisruptionbudgets: {error}") from error
        found += read_budgets(page.items or ())
        token = page.metadata.continue_
        if not token:
            return found


def read_budgets(items: Iterable[Object]) -> list[DisruptionBudget]:
    """Decode budgets. One whose status was never written allows no eviction, as the API server decides it."""
    return [
        DisruptionBudget(
            item["metadata"].get("namespace", "default"),
            item["metadata"]["name"],
            (item.get("spec") or {}).get("selector"),
            int((item.get("status") or {}).get("disruptionsAllowed") or 0),
        )
        for item in items
    ]
