"""What the pages say, and how large they become."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.cli.ui.objects import Object, a_bound_pod, a_node, a_reading, a_waiting_pod
from tests.cli.ui.ui_site import PodRights, run_metrics_page, run_ui
from vrampack.cli.ui.node_filter import ORDERS, NodeFilter
from vrampack.cli.ui.pages import NODES_PER_PAGE, PageRenderer, format_age
from vrampack.cli.ui.pod_scope import PodScope

HTML = '<script>alert(1)</script><img src="https://example.com/a.png">&"\''
MAX_PAGE_BYTES = 300_000
CLUSTER: tuple[Object, ...] = (
    a_node("gpu-1"),
    a_node("gpu-2", 1, cordoned="GPU-gpu-2-0"),
    a_bound_pod("mine", "gpu-1", 0, 8),
    a_bound_pod("theirs", "gpu-1", 1, 6, namespace="secret"),
    a_waiting_pod("late", 12, said="0/2 nodes are available: 2 no card with enough free memory."),
)
"""Cards of 15: 7 and 9 stay free on gpu-1, and 15 on a cordoned card."""


def read_rows(page: str) -> list[list[str]]:
    """The rows of all tables as texts."""
    rows = re.findall(r"<tr>(.*?)</tr>", page, re.DOTALL)
    cells = [re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row, re.DOTALL) for row in rows]
    return [[" ".join(re.sub(r"<[^>]+>", " ", cell).split()) for cell in row] for row in cells]


async def test_the_cluster_is_shown_as_cards_with_their_pods(tmp_path: Path) -> None:
    async with run_ui(tmp_path, CLUSTER) as site:
        page = (await site.ask("/")).text
    model = "Tesla V100-SXM2-16GB"
    assert [row for row in read_rows(page) if row[0] != "Card"] == [
        ["0", model, "8 of 15 GiB", "7 GiB", "default/mine 8 GiB"],
        ["1", model, "6 of 15 GiB", "9 GiB", "secret/theirs 6 GiB"],
        ["0", f"{model} cordoned", "0 of 15 GiB", "15 GiB", "none"],
    ]
    assert "elsewhere" not in page


async def test_pods_that_may_not_be_listed_are_shown_as_a_sum_without_names(tmp_path: Path) -> None:
    """All that is known of a card is what the reader's own pods leave of it."""
    rights = PodRights({"default"}, all_namespaces=["default", "secret"])
    async with run_ui(tmp_path, CLUSTER, rights=rights) as site:
        page = (await site.ask("/")).text
        node = (await site.ask("/nodes/gpu-1")).text
        pod = (await site.ask("/pods/default/late")).text
    for text in (page, node, pod):
        assert "theirs" not in text
        assert "secret" not in text
    assert [row[3:] for row in read_rows(page)[1:3]] == [
        ["0 to 7 GiB", "default/mine 8 GiB 0 to 7 GiB held elsewhere"],
        ["0 to 15 GiB", "0 to 15 GiB held elsewhere"],
    ]
    assert "pods of 1 namespace." in page
    assert "memory may be held elsewhere" in pod


async def test_the_extenders_totals_say_how_much_others_hold(tmp_path: Path) -> None:
    """14 units are held on gpu-1 and 8 of them are the reader's: 6 are elsewhere, on whichever card."""
    async with run_metrics_page(f'vrampack_node_memory_allocated_bytes{{node="gpu-1"}} {14 * 2**30}\n') as url:
        rights = PodRights({"default"}, all_namespaces=["default", "secret"])
        async with run_ui(tmp_path, CLUSTER, rights=rights, metrics_url=url) as site:
            page = (await site.ask("/")).text
    assert "8 GiB of 30 GiB held, 6 GiB held elsewhere" in page
    assert [row[3] for row in read_rows(page)[1:3]] == ["1 to 7 GiB", "9 to 15 GiB"]


@pytest.mark.parametrize(
    ("rights", "namespaces", "said"),
    [
        (PodRights({"default"}), (), "may not list the pods of any namespace"),
        (PodRights({"default"}), ("default", "other"), "pods of 1 namespace."),
        (PodRights({"default", "secret"}, ["default", "secret"]), (), ""),
    ],
    ids=["namespaces may not be listed", "named by --namespace", "each one may be listed"],
)
async def test_the_page_names_the_namespaces_that_are_counted(
    tmp_path: Path, rights: PodRights, namespaces: tuple[str, ...], said: str
) -> None:
    async with run_ui(tmp_path, CLUSTER, rights=rights, namespaces=namespaces) as site:
        page = (await site.ask("/")).text
    assert said in page
    assert ("elsewhere" in page) == bool(said)


async def test_a_reader_who_may_not_list_nodes_sees_the_own_namespace(tmp_path: Path) -> None:
    """That of the context: which pods hold memory, which wait, and what is written on each."""
    told = {"type": "VrampackPlacement", "status": "False", "reason": "NoEmptyCard", "message": "asks for 12 units"}
    late = a_waiting_pod("late", 12, said="0/2 nodes are available")
    late["status"]["conditions"].append(told)
    rights = PodRights({"default"}, may_list_nodes=False)
    async with run_ui(tmp_path, (*CLUSTER[:-1], late), rights=rights, own_namespace="default") as site:
        page = (await site.ask("/")).text
        pending = (await site.ask("/pending")).text
        pods = [(await site.ask(f"/pods/default/{name}")).text for name in ("late", "mine")]
    assert "You may not list nodes, so no cards are shown." in page
    assert read_rows(page)[1:] == [["default/mine", "gpu-1"]]
    assert [row[0] for row in read_rows(pending)[1:]] == ["default/late"]
    assert "The extender says (NoEmptyCard): it asks for 12 units." in pods[0]
    assert "is bound and holds 8 units (8 GiB)" in pods[1]
    assert "/nodes/gpu-1" not in pods[1]
    assert "secret" not in "".join((page, pending, *pods))


async def test_pending_pod_links_to_its_explanation(tmp_path: Path) -> None:
    async with run_ui(tmp_path, CLUSTER) as site:
        (row,) = read_rows((await site.ask("/pending")).text)[1:]
        page = (await site.ask("/pods/default/late")).text
        bound = (await site.ask("/pods/default/mine")).text
    assert (row[0], row[1], row[3]) == ("default/late", "12 units (12 GiB) on one card", "pending")
    assert row[4] == "0/2 nodes are available: 2 no card with enough free memory."
    assert "<strong>Next:</strong> " in page
    assert ["gpu-1", "0", "7 of 15", "5", "not enough free memory", "default/mine 8"] in read_rows(page)
    assert "holds 8 units (8 GiB) on one card of gpu-1." in bound.replace("1 card", "one card")


async def test_only_cards_that_the_pod_may_take_are_shown_as_fitting(tmp_path: Path) -> None:
    """One card is cordoned, and one node too."""
    closed = {**a_node("gpu-3"), "spec": {"unschedulable": True}}
    nodes = (a_node("gpu-2", cordoned="GPU-gpu-2-0"), closed)
    async with run_ui(tmp_path, (*nodes, a_waiting_pod("late", 12))) as site:
        page = (await site.ask("/pods/default/late")).text
    assert re.findall('<td class="fits">([^<]+)</td>', page) == ["fits"]


async def test_texts_from_the_cluster_are_never_markup(tmp_path: Path) -> None:
    """The API server checks names; a page must not count on it, and what a scheduler or an annotation says is free text."""
    hostile = a_node("gpu-1")
    notes = hostile["metadata"]["annotations"]
    notes["vrampack.dev/cards"] = notes["vrampack.dev/cards"].replace("Tesla V100", HTML.replace('"', '\\"'))
    damaged = a_node("gpu-2")
    damaged["metadata"]["annotations"]["vrampack.dev/cards"] = HTML
    waiting = a_waiting_pod("late", 99, said=HTML)
    waiting["spec"]["schedulerName"] = HTML
    waiting["spec"]["nodeSelector"] = {"a": HTML}
    objects = (hostile, damaged, waiting, a_bound_pod("b", "gpu-1", 0, 4))
    async with run_ui(tmp_path, objects) as site:
        paths = (
            "/",
            "/nodes/gpu-1",
            "/nodes/gpu-2",
            "/pending",
            "/pods/default/late",
            "/?q=" + "%3Cscript%3E",
            "/nodes/%3Cscript%3E",
        )
        pages = [(await site.ask(path)).text for path in paths]
    for page in pages:
        assert "<script" not in page
        assert "<img" not in page
    assert any("&lt;script&gt;alert(1)" in page for page in pages)


SIZES = {
    "many": (5000, [0] * 8, 0),
    "a hundred pods on each node": (60, [13] * 8, 0),
    "the longest names": (60, [9] * 8, 253),
    "MIG": (60, [3] * 56, 0),
}
"""Nodes, pods on each card, the length of names. A page shows fifty nodes at most, so that many are enough to fill it."""


@pytest.mark.parametrize(("nodes", "pods_by_card", "name_length"), SIZES.values(), ids=SIZES)
def test_a_page_of_a_large_cluster_stays_small(nodes: int, pods_by_card: list[int], name_length: int) -> None:
    reading = a_reading(nodes, pods_by_card, scope=PodScope(("default",), is_complete=False), name_length=name_length)
    pages = PageRenderer(1024, "test")
    for order in ORDERS:
        page = pages.render_cluster(reading, NodeFilter(order=order))
        assert len(page) <= MAX_PAGE_BYTES
        assert 1 <= page.count(b"<section") <= NODES_PER_PAGE


def test_every_node_is_on_one_page() -> None:
    reading, pages = a_reading(120, [5, 0]), PageRenderer(1024, "test")
    found: list[str] = []
    for number in (1, 2, 3):
        found += re.findall(
            r'<h2 id="node-\d+"><a href="/nodes/([^"]+)"', pages.render_cluster(reading, NodeFilter(), number).decode()
        )
    assert found == [node.name for node in reading.nodes]


def test_nodes_are_found_by_their_name_and_by_their_pods() -> None:
    reading, pages = a_reading(12, [2]), PageRenderer(1024, "test")
    assert pages.render_cluster(reading, NodeFilter("gpu-0007")).count(b"<section") == 1
    assert b"gpu-0003</a></h2>" in pages.render_cluster(reading, NodeFilter("default/app-3-"))
    assert "has “none” in its name" in pages.render_cluster(reading, NodeFilter("none")).decode()


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/nodes/none", 404),
        ("/pods/default/none", 404),
        ("/none", 404),
        ("/pods/default/%2e%2e", 404),
        ("/pods/..%2f..%2fdefault/mine", 404),
        ("/?page=x", 400),
        ("/reports/given", 404),
        ("/reports/replay", 404),
    ],
)
async def test_a_missing_object_has_an_error_page(tmp_path: Path, path: str, status: int) -> None:
    async with run_ui(tmp_path, CLUSTER) as site:
        answer = await site.ask(path)
    assert answer.status == status
    assert '<p class="fault" role="alert">' in answer.text


async def test_each_page_says_which_cluster_it_shows(tmp_path: Path) -> None:
    async with run_ui(tmp_path, CLUSTER) as site:
        for path in ("/", "/nodes/gpu-1", "/pending", "/pods/default/late", "/simulate", "/none"):
            assert "<span>prod-eu (10.0.0.1:6443)</span>" in (await site.ask(path)).text


async def test_the_page_of_one_node_has_the_uuids_of_its_cards(tmp_path: Path) -> None:
    async with run_ui(tmp_path, CLUSTER) as site:
        assert "<code>GPU-gpu-1-1</code>" in (await site.ask("/nodes/gpu-1")).text
        assert "<code>" not in (await site.ask("/")).text


async def test_a_pod_that_may_not_be_read_is_reported_as_refused(tmp_path: Path) -> None:
    async with run_ui(tmp_path, CLUSTER, rights=PodRights({"default"}), namespaces=["default"]) as site:
        answer = await site.ask("/pods/secret/theirs")
    assert (answer.status, "the API server refused: 403" in answer.text) == (502, True)


async def test_a_pod_under_rules_that_cannot_be_read_is_explained_by_itself(tmp_path: Path) -> None:
    """They name labels of its namespace, and the reader may not list namespaces."""
    config = tmp_path / "extender.yaml"
    profile = {"name": "s", "policy": "spread", "users": {"namespace_labels": {"team": "a"}}}
    head = {"apiVersion": "vrampack.dev/v1", "kind": "ExtenderConfiguration"}
    config.write_text(json.dumps({**head, "profiles": [profile]}))
    async with run_ui(tmp_path, CLUSTER, rights=PodRights({"default"}), namespaces=["default"], config=config) as site:
        answer = await site.ask("/pods/default/late")
    assert (answer.status, "You may not list namespaces, whose labels" in answer.text) == (200, True)


async def test_reading_again_shows_what_changed(tmp_path: Path) -> None:
    async with run_ui(tmp_path, CLUSTER) as site:
        assert "default/mine" in (await site.ask("/nodes/gpu-1")).text
        site.api.delete("pods", "mine", grace_seconds=0)
        answer = await site.post("/read-again", back="/nodes/gpu-1")
        assert (answer.status, answer.headers["Location"]) == (303, "/nodes/gpu-1")
        assert "default/mine" not in (await site.ask("/nodes/gpu-1")).text


async def test_a_report_is_shown_without_scripts_and_external_content(tmp_path: Path) -> None:
    report = tmp_path / "out.html"
    report.write_text(f"<h1>Report</h1>{HTML}")
    async with run_ui(tmp_path, CLUSTER, report_file=report) as site:
        page, sent = await site.ask("/simulate"), await site.ask("/reports/given")
    assert '<iframe src="/reports/given" title="Report out.html" sandbox></iframe>' in page.text
    assert sent.text == report.read_text()
    assert sent.headers["Content-Security-Policy"].startswith("sandbox; default-src 'none'; ")


@pytest.mark.parametrize("text", ["", "yesterday", "2026-01-01"])
def test_an_unreadable_time_is_unknown(text: str) -> None:
    assert format_age(text) == "unknown"
