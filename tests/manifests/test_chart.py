"""The chart, read without helm; what helm makes of it is in `tests/e2e/test_chart.py`."""

from __future__ import annotations

import json
import re

import pytest
import yaml

from tests.support.chart.rendering import PAGE, VALUES_SCHEMA, embed_schemas, embed_table
from tests.support.chart.values import CHART, read_values
from vrampack.cli.version import VERSION

GUESSES = re.compile(
    r"\.Capabilities|\blookup\b|\brand\w+|\bgen(CA|Cert|Signed|Self|Private)\w*|\buuidv4\b|\bnow\b|helm\.sh/hook"
)
"""What would make the same values render differently in another cluster, or make an object that Helm forgets."""


def test_templates_depend_on_nothing_but_the_values() -> None:
    code = {path: re.findall(r"{{.*?}}|helm\.sh/hook", path.read_text()) for path in CHART.rglob("templates/**/*.*")}
    assert len(code) > 25
    assert {path.name: found for path, each in code.items() for found in each if GUESSES.search(found)} == {}


def test_each_value_has_a_comment_and_is_in_the_manual() -> None:
    assert [value.path for value in read_values() if not value.comment] == []
    assert PAGE.read_text() == embed_table(PAGE.read_text())


def test_the_chart_schema_contains_the_schemas_of_the_program_files() -> None:
    assert VALUES_SCHEMA.read_text() == embed_schemas(VALUES_SCHEMA.read_text())


ELSEWHERE = {
    # A value of the chart's own, an address, or something that is right only in the chart.
    "extender": {"apiVersion", "kind", "listen", "tls", "unit_mib", "policy", "profiles", "rules", "usage_leases"},
    "agent": {"apiVersion", "kind", "mode", "standalone", "listen", "metrics", "resources", "unit_mib", "usage_lease"},
}


@pytest.mark.parametrize("program", ELSEWHERE)
def test_each_setting_of_a_program_can_be_given_by_the_chart(program: str) -> None:
    """Otherwise a field that is added to a file's schema would be rejected by the chart until somebody misses it."""
    schema = json.loads(VALUES_SCHEMA.read_text())
    given = schema["properties"][program]["properties"]["config"]["properties"]
    assert given.keys() | ELSEWHERE[program] == schema["$defs"][f"{program}-configuration"]["properties"].keys()
    assert not given.keys() & ELSEWHERE[program]


def test_chart_and_image_have_the_same_version() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert (chart["version"], chart["appVersion"]) == (VERSION, VERSION)
