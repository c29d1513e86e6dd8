"""Code, the routes of the application and the documentation agree on one list of what is served."""

from __future__ import annotations

import re
from pathlib import Path

from aiohttp import web

from vrampack.simulator.apiserver import ApiServer
from vrampack.simulator.discovery import build_api_resource_list
from vrampack.simulator.endpoints import list_endpoints
from vrampack.simulator.resource_kinds import KINDS_BY_PLURAL
from vrampack.simulator.routes import build_application
from vrampack.simulator.table_columns import COLUMNS_BY_PLURAL
from vrampack.simulator.watch_streams import WatchStreams

DOCUMENT = Path(__file__).parents[2] / "docs" / "embedded-cluster.md"
ROW = re.compile(r"^\| `(?P<path>/[^`]*)` \| (?P<methods>[A-Z, ]+) \|", re.MULTILINE)


def an_application() -> web.Application:
    store = ApiServer().store
    return build_application(store, WatchStreams(store))


def listed() -> set[tuple[str, str]]:
    return {(route.method, route.path) for route in list_endpoints()}


def test_the_application_serves_what_is_listed_and_nothing_else() -> None:
    routes = [(route.method, route.resource.canonical) for route in an_application().router.routes() if route.resource]

    assert len(routes) == len(list_endpoints())
    assert set(routes) == listed()


def test_the_documentation_lists_the_served_endpoints() -> None:
    rows = ROW.finditer(DOCUMENT.read_text())

    documented = [(method, row["path"]) for row in rows for method in row["methods"].strip().split(", ")]

    assert sorted(documented) == sorted(listed())


def test_discovery_lists_the_served_resources_and_verbs() -> None:
    verbs = {
        "list_or_watch": {"list", "watch"},
        "patch_status": {"patch"},
        "patch_scale": {"patch"},
        "get_scale": {"get"},
        "bind": {"create"},
        "evict": {"create"},
    }
    served: dict[str, set[str]] = {}
    for route in list_endpoints():
        if route.kind is not None:
            half = route.path.rpartition("{name}/")[2] if "{name}/" in route.path else ""
            name = f"{route.kind.plural}/{half}".rstrip("/")
            served.setdefault(name, set()).update(verbs.get(route.handler, {route.handler}))

    told = {
        entry["name"]: set(entry["verbs"])
        for root in ("/api/v1", "/apis/apps/v1")
        for entry in build_api_resource_list(root)["resources"]
    }

    assert told == served | {"replicasets": set()}


def test_every_kind_has_a_table() -> None:
    assert COLUMNS_BY_PLURAL.keys() == KINDS_BY_PLURAL.keys()
