"""Replicas follow the queue time, through prometheus-adapter and through KEDA, and land on the card that serves already."""

from __future__ import annotations

from http import HTTPStatus

from tests.e2e.recipes.hpa.keda import run_keda
from tests.e2e.recipes.hpa.prometheus_adapter import run_prometheus_adapter
from tests.e2e.recipes.hpa.scaled_service import T4_MIB, WITHIN_SECONDS, ScaledService, list_cards, list_limits

SEVEN_REPLICAS_US = 330
"""330 / 50 = 6.6 replicas are wanted, and with 7 of them each request waits 47."""

QUEUE_TIME = (
    "/apis/external.metrics.k8s.io/v1beta1/namespaces/default/s0-prometheus"
    "?labelSelector=scaledobject.keda.sh/name%3Dinference"
)


def test_replicas_follow_the_queue_time_through_prometheus_adapter(service: ScaledService) -> None:
    with run_prometheus_adapter(service):
        service.apply_recipe("hpa.yaml")
        _check_replicas(service)

        (metric,) = service.read_autoscaler("inference")["status"]["currentMetrics"]
        assert metric["pods"]["metric"]["name"] == "avg_time_queue_us"


def test_replicas_follow_the_queue_time_through_keda(service: ScaledService) -> None:
    with run_keda(service):
        service.apply_recipe("scaledobject.yaml")
        _check_replicas(service)

        (metric,) = service.read_autoscaler("keda-hpa-inference")["status"]["currentMetrics"]
        assert metric["external"]["metric"]["name"] == "s0-prometheus"
        # Nothing is left to scrape: that is an error, on which the HPA does nothing, and not 0, on which it scales down.
        service.cluster.kubectl("delete", "deployment", "inference")
        service.cluster.wait_until(
            lambda: service.cluster.request("GET", QUEUE_TIME)[0] == HTTPStatus.INTERNAL_SERVER_ERROR,
            WITHIN_SECONDS,
            what=lambda: f"no metric: {service.cluster.request('GET', QUEUE_TIME)}",
        )


def _check_replicas(service: ScaledService) -> None:
    first = service.wait_for_replicas(1)
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
