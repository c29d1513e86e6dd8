"""Pages of metrics, read as a scraper does: from the pod's own address."""

from __future__ import annotations

from urllib.request import urlopen

from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from tests.node.node import NAMESPACE, LiveNode

PORTS = {"vrampack-agent": 12347, "vrampack-scheduler": 12346}
TIMEOUT_SECONDS = 10


def read_samples(node: LiveNode, program: str) -> list[Sample]:
    """Everything on the pages of all pods of this program."""
    samples: list[Sample] = []
    for pod in node.list_objects("pods", "-n", NAMESPACE, "-l", f"app.kubernetes.io/name={program}"):
        address = f"http://{pod['status']['podIP']}:{PORTS[program]}/metrics"
        with urlopen(address, timeout=TIMEOUT_SECONDS) as page:
            text = page.read().decode()
        samples += [sample for family in text_string_to_metric_families(text) for sample in family.samples]
    return samples


def sum_metric(node: LiveNode, program: str, name: str, **labels: str) -> float:
    """The sum of a sample over all pods of this program, and over the labels that are not given."""
    samples = read_samples(node, program)
    return sum(each.value for each in samples if each.name == name and labels.items() <= each.labels.items())
