"""What we use of uvicorn's private side: one file uses it, and only these names, so an upgrade that breaks one is seen here."""

from __future__ import annotations

import ast
import inspect
from pathlib import Path

import pytest
import uvicorn
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle
from uvicorn.server import ServerState

from extender.http import protocol, uvicorn_protocol

PRODUCT = ("extender", "vrampack", "policies")
ROOT = Path(__file__).parent.parent.parent
PROTOCOL = {
    *("client", "connections", "cycle", "flow", "headers", "limit_concurrency", "loop", "parser", "pipeline"),
    *("scheme", "server_state", "tasks", "transport", "url"),
    *("connection_made", "data_received", "eof_received", "connection_lost", "pause_writing", "resume_writing"),
    *("on_message_begin", "on_headers_complete", "on_body", "on_message_complete", "on_response_complete"),
    *("shutdown", "timeout_keep_alive_handler"),
}
USED: dict[type, set[str]] = {
    HttpToolsProtocol: PROTOCOL,
    RequestResponseCycle: {"response_complete", "disconnected", "keep_alive", "message_event"},
    FlowControl: {"_transport", "pause_reading", "read_paused", "resume_reading", "write_paused"},
    uvicorn.Server: {"capture_signals", "config", "server_state", "servers", "started", "startup"},
    ServerState: {"default_headers", "total_requests"},
    uvicorn.Config: {"backlog", "http_protocol_class", "ssl"},
}
IN_THE_VERBS = {"shutdown", "transport", "url"}
"""Besides the parser's callbacks; everything else they reach through `PacedProtocol`."""


@pytest.mark.parametrize("kind", USED, ids=lambda kind: kind.__name__)
def test_uvicorn_still_has_what_we_use(kind: type) -> None:
    assert USED[kind] <= set(dir(kind)) | list_own_names(inspect.getsource(inspect.getmodule(kind) or kind))


def test_only_one_file_knows_the_private_side() -> None:
    files = [path for folder in PRODUCT for path in (ROOT / folder).rglob("*.py")]
    private = [path.name for path in files if "uvicorn." in "".join(find_imports(path.read_text()))]
    assert private == [Path(uvicorn_protocol.__file__).name]


def test_every_name_that_we_use_is_in_the_table() -> None:
    """Names on `self` that our own classes do not have are uvicorn's."""
    used = list_used_names(uvicorn_protocol.__file__) | list_used_names(protocol.__file__)
    assert used <= set().union(*USED.values())
    assert list_used_names(protocol.__file__) - {name for name in PROTOCOL if name.startswith("on_")} <= IN_THE_VERBS


def find_imports(source: str) -> list[str]:
    return [node.module or "" for node in ast.walk(ast.parse(source)) if isinstance(node, ast.ImportFrom)]


def list_own_names(source: str) -> set[str]:
    """Attributes that the source assigns or declares on objects."""
    nodes = list(ast.walk(ast.parse(source)))
    assigned = {node.attr for node in nodes if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store)}
    declared = {
        node.target.id for node in nodes if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)
    }
    return assigned | declared


def list_used_names(file: str) -> set[str]:
    """Attributes of `self` in the file's classes that these classes, or `PacedProtocol`, do not define themselves."""
    tree = ast.parse(Path(file).read_text())
    used = {
        node.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "self"
    }
    ours = (uvicorn_protocol.PacedProtocol, uvicorn_protocol.PacedFlowControl, uvicorn_protocol.DeadlineServer)
    defined = set().union(*(vars(kind).keys() | kind.__annotations__.keys() for kind in (*ours, protocol.VerbProtocol)))
    return {name for name in used if name not in defined - PROTOCOL and not name.startswith("_")} | used & {
        "_transport"
    }
