"""The command line and the watch, against a small API server on loopback."""

import json
import os
import subprocess
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from queue import Queue
from threading import Event, Thread

import pytest

from tests.auditor.__main__ import main
from tests.auditor.api import AuditorApi
from tests.auditor.builders import AuditScene, Object, a_node, a_pod, bound, clean_scene
from tests.auditor.spoils import add_pod
from tests.auditor.terms import Terms, Violation
from tests.auditor.watch import CardWatch, LiveWatch

OVER = "I1 node n1 card 0: 16 of 15 units held: ml/eight 8, ml/four 4, ml/leaving 3 (terminating), ml/new 1"


class FakeApi:
    """Serves a scene in pages of one object, then the events put into `events` on its pod watches."""

    def __init__(self, scene: AuditScene) -> None:
        self.scene = scene
        self.events: Queue[Object | None] = Queue()
        self.closing = Event()
        self.tokens: set[str] = set()
        self.lists = 0

    def page(self, kind: str, query: str) -> Object:
        objects = list((self.scene.pods if kind == "pods" else self.scene.nodes).values())
        at = int(query.partition("continue=")[2] or 0)
        more = {"continue": str(at + 1)} if at + 1 < len(objects) else {}
        self.lists += kind == "pods" and at == 0
        return {"metadata": {"resourceVersion": "7"} | more, "items": objects[at : at + 1]}

    def stream(self, kind: str) -> Iterable[Object]:
        if kind == "nodes":
            self.closing.wait()
            return
        while (event := self.events.get()) is not None:
            yield event


@contextmanager
def serving(api: FakeApi) -> Iterator[str]:
    class Routes(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            api.tokens.add(self.headers.get("Authorization", ""))
            path, _, query = self.path.partition("?")
            kind = path.rpartition("/")[2]
            if kind not in {"pods", "nodes"} or api.closing.is_set():
                self.send_error(503)
                return
            self.send_response(200)
            self.end_headers()
            for answer in api.stream(kind) if "watch=true" in query else [api.page(kind, query)]:
                self.wfile.write(json.dumps(answer).encode() + b"\n")

        def log_message(self, *_: object) -> None:
            """Log nothing: tests are quiet."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Routes) as server:
        server.daemon_threads = True
        thread = Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            api.closing.set()
            api.events.put(None)
            server.shutdown()
            thread.join()


def test_the_command_prints_nothing_for_a_clean_cluster(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    api, token = FakeApi(clean_scene()), tmp_path / "token"
    token.write_text("secret\n")
    with serving(api) as url:
        assert (
            main(
                [
                    "--api",
                    url,
                    "--transcript",
                    _transcript(api.scene, tmp_path),
                    "--complete",
                    "--token-file",
                    str(token),
                ]
            )
            == 0
        )
    assert capsys.readouterr().out == ""
    assert api.tokens == {"Bearer secret"}


def test_the_command_prints_each_violation(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    scene = clean_scene()
    add_pod(1, card=0, node="n1")(scene)
    scene.add_bind_answer("four", "n1", "no room")
    with serving(FakeApi(scene)) as url:
        arguments = ["--api", url, "--transcript", _transcript(scene, tmp_path)]
        assert main(arguments) == 1
        assert main([*arguments, "--excuse", "node n1 card 0", "--excuse", "pod ml/four"]) == 0
    said = "bind said no for node n1, the API shows the pod there with our record"
    assert capsys.readouterr().out.splitlines() == [OVER, f"I4 pod ml/four: {said}"]


def test_a_watch_reports_an_over_commitment_that_lasts_one_event() -> None:
    """The card is over for one event only; two lists would never have seen it."""
    scene, cards = clean_scene(), CardWatch(Terms())
    assert [*cards.replace("nodes", scene.nodes.values()), *cards.replace("pods", scene.pods.values())] == []
    pod = bound(a_pod("new", {"main": 1}), scene.nodes["n1"])
    assert [str(found) for found in cards.apply("pods", {"type": "ADDED", "object": pod})] == [OVER]
    assert cards.apply("pods", {"type": "MODIFIED", "object": pod}) == []
    assert cards.apply("pods", {"type": "DELETED", "object": pod}) == []
    assert [str(found) for found in cards.apply("pods", {"type": "ADDED", "object": pod})] == [OVER]


def test_a_watch_handles_a_shrinking_card_and_a_new_list_without_a_pod() -> None:
    scene, cards = clean_scene(), CardWatch(Terms())
    cards.replace("nodes", scene.nodes.values())
    cards.replace("pods", scene.pods.values())
    smaller = {"type": "MODIFIED", "object": a_node("n1", units=(14, 15))}
    assert [found.object for found in cards.apply("nodes", smaller)] == ["node n1 card 0"]
    del scene.pods["four"]
    assert cards.replace("pods", scene.pods.values()) == []
    assert cards.apply("nodes", smaller) == []


def test_a_live_watch_follows_events_and_lists_again_after_an_error() -> None:
    scene = clean_scene()
    api = FakeApi(scene)
    found: Queue[Violation] = Queue()
    with serving(api) as url:
        watch = LiveWatch(AuditorApi(url), Terms(), found.put)
        watch.start()
        api.events.put({"type": "ADDED", "object": bound(a_pod("new", {"main": 1}), scene.nodes["n1"])})
        assert str(found.get(timeout=10)) == OVER
        add_pod(2, card=0, node="n1")(scene)
        api.events.put({"type": "ERROR", "object": {"code": 410}})
        assert found.get(timeout=10).text.startswith("17 of 15 units")
        assert api.lists == 2
        watch.stop()


def test_the_watching_command_reports_its_findings_when_it_is_signalled() -> None:
    scene = clean_scene()
    api = FakeApi(scene)
    with serving(api) as url:
        command = [sys.executable, "-m", "tests.auditor", "--watch", "--api", url]
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=_here()
        ) as auditor:
            assert auditor.stdout
            assert auditor.stderr
            assert auditor.stderr.readline() == "watching\n"
            api.events.put({"type": "ADDED", "object": bound(a_pod("new", {"main": 1}), scene.nodes["n1"])})
            assert auditor.stdout.readline() == OVER + "\n"
            auditor.terminate()
            assert auditor.wait(10) == 1


def _transcript(scene: AuditScene, folder: Path) -> str:
    file = folder / "transcript.jsonl"
    file.write_text("".join(json.dumps(line) + "\n" for line in scene.transcript))
    return str(file)


def _here() -> dict[str, str]:
    return os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])}
