"""Replicas follow the queue time through prometheus-adapter, and land on the card that serves already."""

from __future__ import annotations

from tests.e2e.recipes.hpa.adapters import run_prometheus_adapter
from tests.e2e.recipes.hpa.scaled_service import HPAS, T4_MIB, ScaledService, list_cards, list_limits

SEVEN_REPLICAS_US = 330
"""330 / 50 = 6.6 replicas are wanted, and with 7 of them each request waits 47."""


def test_replicas_follow_the_queue_time(service: ScaledService) -> None:
    first = service.wait_for_replicas(1)
    with run_prometheus_adapter(service):
        service.apply_recipe("hpa.yaml")
        service.servers.set_demand(SEVEN_REPLICAS_US)

        seven = service.wait_for_replicas(7)

        assert list_cards(seven) == list_cards(first)
        # floor(15109 MiB * 2 / 14), seven times within the card.
        assert list_limits(seven) == [2158] * 7
        assert sum(list_limits(seven)) <= T4_MIB

        service.servers.set_demand(0)
        service.wait_for_replicas(1)

        # Up once and down once: at no moment more than are wanted, or fewer.
        assert service.kubelet.counts == (1, 2, 3, 4, 5, 6, 7, 6, 5, 4, 3, 2, 1)
        status = service.cluster.request_ok("GET", f"{HPAS}/inference")["status"]
        assert status["currentMetrics"][0]["pods"]["metric"]["name"] == "avg_time_queue_us"
