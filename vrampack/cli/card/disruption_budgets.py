"""The PodDisruptionBudgets that say whether a pod may be evicted now."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import partial

import msgspec

from vrampack.kube.diagnostic_client import DiagnosticApi
from vrampack.kube.list_page import ListPage, decode_page
from vrampack.kube.list_pager import ListPager
from vrampack.simulator.resource_kinds import Object
from vrampack.simulator.selectors import matches_selector

_PAGE = msgspec.json.Decoder(ListPage[Object])


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
    fetch = partial(
        api.read_list_page,
        "/apis/policy/v1/poddisruptionbudgets",
        resource="poddisruptionbudgets",
        timeout_seconds=timeout_seconds,
    )
    decode = partial(decode_page, decoder=_PAGE, resource="poddisruptionbudgets")
    pages = ListPager(fetch, decode, "poddisruptionbudgets").read_pages()
    return [budget async for page in pages for budget in read_budgets(page.items or ())]


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
