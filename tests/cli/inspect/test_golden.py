"""Every cluster of `clusters.py` is shown byte by byte as its files in golden/ say. They were read, not regenerated."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.cli.inspect.clusters import CLUSTERS
from vrampack.cli.inspect.cluster import InspectedCluster, UnreadObject, inspect_cluster
from vrampack.cli.inspect.schema import build_inspection_document, format_json, format_yaml
from vrampack.cli.inspect.table_views import format_details, format_summary, format_wide
from vrampack.cli.inspect.text_columns import color_problems

GOLDEN = Path(__file__).parent / "golden"
TABLES: dict[str, Callable[[InspectedCluster], str]] = {
    "summary": format_summary,
    "details": format_details,
    "wide": format_wide,
}


@pytest.mark.parametrize("table", TABLES)
@pytest.mark.parametrize("name", CLUSTERS)
def test_a_table_matches_its_golden_file(name: str, table: str) -> None:
    want = (GOLDEN / f"{name}.{table}.txt").read_text()
    assert TABLES[table](inspect_cluster(CLUSTERS[name].lists())) == want


@pytest.mark.parametrize(("width", "heading"), [(58, "GPU0(Allocated/Total)"), (57, "GPU0"), (30, "CARD")])
def test_a_summary_that_is_wider_than_the_terminal_is_shown_in_another_form(width: int, heading: str) -> None:
    lines = format_summary(inspect_cluster(CLUSTERS["twelve-nodes"].lists()), max_width=width).splitlines()
    assert heading in lines[0].split()
    assert max(map(len, lines[:13])) <= width or heading == "CARD"


@pytest.mark.parametrize("path", sorted(GOLDEN.glob("*.json")), ids=lambda path: path.stem)
def test_the_json_matches_its_golden_file(path: Path) -> None:
    assert format_json(inspect_cluster(CLUSTERS[path.stem].lists())) == path.read_text()


def test_every_golden_file_has_its_cluster() -> None:
    wanted = {f"{name}.{table}.txt" for name in CLUSTERS for table in TABLES}
    assert {path.name for path in GOLDEN.glob("*.txt")} == wanted


@pytest.mark.parametrize("name", CLUSTERS)
def test_yaml_and_json_have_the_same_content(name: str) -> None:
    cluster = inspect_cluster(CLUSTERS[name].lists())
    assert (
        yaml.safe_load(format_yaml(cluster)) == json.loads(format_json(cluster)) == build_inspection_document(cluster)
    )


@settings(deadline=None)
@given(st.text())
@example("null")
@example("Yes")
@example("1e3")
@example("~")
@example("")
@example("- a: b #c")
@example('a\u2028\x7f\x85\ufeff\U000e0001\U0001f600\\"')
def test_yaml_carries_any_text(text: str) -> None:
    unread = (UnreadObject(text, text),)
    cluster = replace(inspect_cluster(CLUSTERS["no-gpu-nodes"].lists()), unread_objects=unread)
    assert yaml.safe_load(format_yaml(cluster))["unread"] == [{"object": text, "problem": text}]


@pytest.mark.parametrize("page_size", [1, 2])
@pytest.mark.parametrize("name", CLUSTERS)
def test_list_order_and_paging_do_not_change_the_output(name: str, page_size: int) -> None:
    lists = CLUSTERS[name].lists(page_size)
    lists.nodes, lists.pods = lists.nodes[::-1], lists.pods[::-1]
    assert inspect_cluster(lists) == inspect_cluster(CLUSTERS[name].lists())


@pytest.mark.parametrize("name", CLUSTERS)
def test_no_line_ends_in_a_blank_or_begins_with_annotation_text(name: str) -> None:
    cluster = inspect_cluster(CLUSTERS[name].lists())
    for table in TABLES.values():
        text = table(cluster)
        assert text.endswith("\n")
        assert [line for line in text.split("\n") if line != line.rstrip() or not line.isprintable()] == []


def test_colour_marks_trouble_and_nothing_else() -> None:
    """GPU0 is sick: its cell and the line about it are red, in a table that is otherwise the plain one."""
    plain = (GOLDEN / "unhealthy.summary.txt").read_text()
    red = color_problems(plain)
    assert red == plain.replace("4/15!", "\x1b[31m4/15!\x1b[0m").replace(
        "! n GPU0 is unhealthy", "\x1b[31m! n GPU0 is unhealthy\x1b[0m"
    )
    healthy = (GOLDEN / "recorded.details.txt").read_text()
    assert color_problems(healthy) == healthy
