"""The chart, read without helm; what helm makes of it is in `tests/e2e/test_chart.py`."""

from __future__ import annotations

import re

import yaml

from tests.support.chart.rendering import PAGE, VALUES_SCHEMA, embed_schemas, embed_table
from tests.support.chart.values import CHART, read_values
from vrampack.cli.version import VERSION

GUESSES = re.compile(
    r"\.Capabilities|\blookup\b|\brand\w+|\bgen(CA|Cert|Signed|Self|Private)\w*|\buuidv4\b|\bnow\b|helm\.sh/hook"
)
"""Whatever makes of one set of values another object elsewhere, or an object that Helm forgets."""


def test_the_same_values_are_the_same_objects_everywhere() -> None:
    code = {path: re.findall(r"{{.*?}}|helm\.sh/hook", path.read_text()) for path in CHART.rglob("templates/**/*.*")}
    assert len(code) > 25
    assert {path.name: found for path, each in code.items() for found in each if GUESSES.search(found)} == {}


def test_each_value_says_why_to_set_it_and_is_in_the_manual() -> None:
    assert [value.path for value in read_values() if not value.comment] == []
    assert PAGE.read_text() == embed_table(PAGE.read_text())


def test_the_schema_has_those_of_the_programs_files_in_it() -> None:
    assert VALUES_SCHEMA.read_text() == embed_schemas(VALUES_SCHEMA.read_text())


def test_the_chart_is_of_the_version_of_the_image() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert (chart["version"], chart["appVersion"]) == (VERSION, VERSION)
