"""The operator's objects, its operands filled in as far as an API server looks at them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from tests.support.manifests import SAFE_LOADER, load_documents
from tests.support.processes import REPOSITORY

NAMESPACE = "gpu-operator"
VALUES = REPOSITORY / "docs" / "recipes" / "gpu-operator" / "values.yaml"
RELEASE = Path(__file__).parent / "v26.7.0"
DEFINITION = RELEASE / "clusterpolicies.yaml"
ONLY_ON_OPENSHIFT = "openshift-driver-toolkit-ctr"
"""The operator removes it elsewhere, and has created no volume for it."""
FILLED_IN = {
    'namespace: "FILLED BY THE OPERATOR"': f"namespace: {NAMESPACE}",
    '"FILLED BY THE OPERATOR"': "nvcr.io/nvidia/operand:1",
    '"FILLED BY OPERATOR"': "filled-in",
    '"FILLED_BY_OPERATOR"': "filled-in",
}


def load_chart() -> list[Any]:
    """What Helm makes of the recipe's values."""
    return load_documents(RELEASE / "chart.yaml")


def load_cluster_policy() -> Any:  # noqa: ANN401 - asserted where it is read
    (policy,) = [item for item in load_chart() if item["kind"] == "ClusterPolicy"]
    return policy


def load_operands() -> list[Any]:
    """The DaemonSets of a node with driver, toolkit and metrics."""
    found = []
    for file in sorted((RELEASE / "operands").glob("*.yaml")):
        text = file.read_text()
        for placeholder, value in FILLED_IN.items():
            text = text.replace(placeholder, value)
        found += [item for item in yaml.load_all(text, SAFE_LOADER) if item]
    for item in found:
        spec = item["spec"]["template"]["spec"]
        spec["containers"] = [each for each in spec["containers"] if each["name"] != ONLY_ON_OPENSHIFT]
    return found
