"""I1 at every moment: each pod event is a state the cluster was in, and no card may be over in any of them.

    list -> replace -> watch -> apply, apply, ... -> stream ends: watch on; 410 or ERROR: list again

Pods and nodes arrive on two streams, so a card that shrinks may be judged a moment early or late; pods never are.
"""

import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from http.client import HTTPException
from threading import Event, Lock, Thread

from tests.auditor.api import ApiError, AuditorApi
from tests.auditor.cards import NodeCards, read_node
from tests.auditor.holdings import find_oversold_cards
from tests.auditor.pods import AuditedPod, read_pod
from tests.auditor.raw import Raw, mapping, metadata, text
from tests.auditor.terms import Terms, Violation

PAUSE_SECONDS = 0.2  # between attempts while the API server is away; a guess, short against any fault a test makes


class CardWatch:
    """The cluster as the events left it; reports each over-commitment once, when it begins or changes."""

    def __init__(self, terms: Terms, *, count_unrecorded: bool = True) -> None:
        self._terms = terms
        self._count_unrecorded = count_unrecorded
        self._nodes: dict[str, NodeCards] = {}
        self._pods: dict[str, AuditedPod] = {}
        self._on_node: defaultdict[str, dict[str, AuditedPod]] = defaultdict(dict)
        self._told: defaultdict[str, set[Violation]] = defaultdict(set)

    def replace(self, kind: str, items: Iterable[Raw]) -> list[Violation]:
        """Take a whole list as the state of a kind."""
        objects = {_key(item): item for item in items}
        here = self._pods if kind == "pods" else self._nodes
        touched = set().union(*(self._put(kind, key, None) for key in list(here) if key not in objects))
        touched = touched.union(*(self._put(kind, key, item) for key, item in objects.items()))
        return [violation for node in sorted(touched) for violation in self._judge(node)]

    def apply(self, kind: str, event: Raw) -> list[Violation]:
        """Take one watch event; bookmarks change nothing."""
        obj = mapping(event.get("object"))
        if event.get("type") not in {"ADDED", "MODIFIED", "DELETED"}:
            return []
        touched = self._put(kind, _key(obj), None if event.get("type") == "DELETED" else obj)
        return [violation for node in sorted(touched) for violation in self._judge(node)]

    def _put(self, kind: str, key: str, obj: Raw | None) -> set[str]:
        """Set or remove one object; the nodes that this concerns."""
        if kind == "nodes":
            self._nodes.pop(key, None)
            if obj is not None:
                self._nodes[key] = read_node(obj, self._terms)
            return {key}
        touched = set()
        if (old := self._pods.pop(key, None)) is not None:
            del self._on_node[old.node][key]
            touched.add(old.node)
        if obj is not None:
            pod = self._pods[key] = read_pod(obj, self._terms)
            self._on_node[pod.node][key] = pod
            touched.add(pod.node)
        return touched

    def _judge(self, name: str) -> Iterator[Violation]:
        node = self._nodes.get(name)
        pods = self._on_node[name].values()
        now = set(find_oversold_cards(node, pods, count_unrecorded=self._count_unrecorded)) if node else set()
        yield from sorted(now - self._told[name])
        self._told[name] = now


class LiveWatch:
    """Feeds a `CardWatch` from two watch threads and passes on what it finds."""

    def __init__(self, api: AuditorApi, terms: Terms, tell: Callable[[Violation], None]) -> None:
        self._api = api
        self._cards = CardWatch(terms)
        self._tell = tell
        self._lock = Lock()
        self._stop = Event()
        self._versions: dict[str, str] = {}

    def start(self) -> None:
        """Return when both lists were judged once; from then on no moment is missed. Raises if they cannot be had."""
        for kind in ("nodes", "pods"):
            self._relist(kind)
            Thread(target=self._follow, args=(kind,), daemon=True).start()

    def stop(self) -> None:
        """Report nothing more. A stream that is quiet now ends with its own time limit.

        It waits for a thread that is just reporting: one that still writes would abort an interpreter that ends.
        """
        with self._lock:
            self._stop.set()

    def _follow(self, kind: str) -> None:
        while not self._stop.is_set():
            try:
                if kind not in self._versions:
                    self._relist(kind)
                self._drain(kind)
            except (ApiError, _ExpiredError):
                self._versions.pop(kind, None)
                self._stop.wait(PAUSE_SECONDS)
            except (OSError, HTTPException, json.JSONDecodeError):
                # A cut line loses nothing: the next watch goes on from the last version seen.
                self._stop.wait(PAUSE_SECONDS)

    def _relist(self, kind: str) -> None:
        items, version = self._api.list(kind)
        with self._lock:
            self._pass_on(self._cards.replace(kind, items))
        self._versions[kind] = version

    def _drain(self, kind: str) -> None:
        for event in self._api.watch(kind, self._versions[kind]):
            if event.get("type") == "ERROR":
                raise _ExpiredError
            with self._lock:
                self._pass_on(self._cards.apply(kind, event))
            version = text(metadata(mapping(event.get("object"))).get("resourceVersion"))
            self._versions[kind] = version or self._versions[kind]

    def _pass_on(self, found: Iterable[Violation]) -> None:
        for violation in found:
            if not self._stop.is_set():
                self._tell(violation)


class _ExpiredError(Exception):
    """The version asked for is too old: list again."""


def _key(obj: Raw) -> str:
    about = metadata(obj)
    return f"{text(about.get('namespace'))}/{text(about.get('name'))}".removeprefix("/")
