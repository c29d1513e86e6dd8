"""Labels of namespaces, kept when a selector of the configuration in force needs them.

    no selector needs any --> nothing is watched
    one does              --> all namespaces are listed, then watched, for the labels that selectors name

A pod of a namespace that has not been seen yet might get past a rule, so verbs answer that they are not ready for it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Protocol

from extender.metrics import ExtenderMetrics
from vrampack.cards.pod import Pod
from vrampack.cards.profiles import NO_SETTINGS, PlacementSettings
from vrampack.cards.request import PodRequest
from vrampack.config.errors import SettingsError
from vrampack.kube.client import Api
from vrampack.kube.objects import NamespaceObject
from vrampack.kube.reflector import ObjectReference, Reflector

log = logging.getLogger(__name__)

LabelPairs = tuple[tuple[str, str], ...]


class NamespaceListener(Protocol):
    """Is told of changes, inside the step that made them."""

    def update_namespace(self, name: str) -> None:
        """The labels of the namespace have changed."""


class NamespaceLabels:
    """The labels with these keys, by namespace."""

    def __init__(self, keys: Collection[str] = ()) -> None:
        self.keys = frozenset(keys)
        self._labels: dict[str, LabelPairs] = {}

    def __contains__(self, name: str) -> bool:
        return name in self._labels

    def list_names(self) -> list[str]:
        return list(self._labels)

    def put_labels(self, name: str, labels: LabelPairs | None) -> bool:
        """Replace the labels of a namespace; None: it is gone. Returns whether that changed anything."""
        before = self._labels.pop(name, None)
        if labels is not None:
            self._labels[name] = labels
        return before != labels

    def label_pod(self, pod: Pod) -> Pod:
        """The pod with the labels of its namespace."""
        labels = self._labels.get(pod.namespace, ())
        return pod if pod.namespace_labels == labels else replace(pod, namespace_labels=labels)


class PlacementInForce:
    """What the configuration says about single pods, given the labels of their namespaces."""

    def __init__(self, settings: PlacementSettings = NO_SETTINGS, namespaces: NamespaceLabels | None = None) -> None:
        self.settings = settings
        self._namespaces = namespaces or NamespaceLabels()
        self.has_rules = settings.rules.has_any
        self._reads_namespaces = bool(settings.list_namespace_label_keys())

    def resolve_pod(self, pod: Pod) -> Pod:
        """The pod with the rules and the profile that are in force for it."""
        return self.settings.resolve_pod(self._namespaces.label_pod(pod))

    def resolve_request(self, pod: Pod, pod_request: PodRequest) -> PodRequest:
        """The same for the request of this pod alone."""
        return self.settings.resolve_request(self._namespaces.label_pod(pod), pod_request)

    def has_labels_of(self, pod: Pod) -> bool:
        """Whether the pod was read with the labels that its namespace has now."""
        return self._namespaces.label_pod(pod) is pod

    def find_unready_reason(self, namespace: str) -> str:
        """Why pods of this namespace cannot be judged yet; empty when they can."""
        if not self._reads_namespaces or namespace in self._namespaces:
            return ""
        return f"namespace {namespace} has not been seen yet, but rules or profiles need its labels"


class NamespaceSink:
    """A reflector's sink: feeds namespaces into a `NamespaceLabels`."""

    def __init__(self, labels: NamespaceLabels, listener: NamespaceListener, metrics: ExtenderMetrics) -> None:
        self.labels = labels
        self._listener = listener
        self._metrics = metrics
        self._listed: set[str] = set()
        self._is_listed = asyncio.Event()

    async def wait_until_listed(self) -> None:
        await self._is_listed.wait()

    def on_list_started(self, reason: str) -> None:
        self._metrics.relists.labels("namespaces", reason).inc()
        self._listed = set()

    def on_page(self, objects: Sequence[NamespaceObject]) -> None:
        for obj in objects:
            self._listed.add(obj.metadata.name)
            self.on_changed(obj)

    def on_list_finished(self) -> None:
        for name in self.labels.list_names():
            if name not in self._listed:
                self._put_labels(name, None)
        self._is_listed.set()

    def on_changed(self, obj: NamespaceObject) -> None:
        labels = obj.metadata.labels or {}
        self._put_labels(
            obj.metadata.name, tuple(sorted((key, labels[key]) for key in self.labels.keys & labels.keys()))
        )

    def on_deleted(self, obj: NamespaceObject) -> None:
        self._put_labels(obj.metadata.name, None)

    def on_malformed(self, reference: ObjectReference, text: str) -> None:
        log.warning("namespace not decoded namespace=%s error=%s", reference.name, text)
        self._listed.add(reference.name)

    def on_contact(self) -> None:
        """Ignored: labels change seldom, and nothing is refused for their age."""

    def _put_labels(self, name: str, labels: LabelPairs | None) -> None:
        """The first list announces nothing: the caller that waits for it applies the labels to all pods."""
        if self.labels.put_labels(name, labels) and self._is_listed.is_set():
            self._listener.update_namespace(name)


class NamespaceWatcher:
    """Runs at most one reflector: that of the configuration in force. `run` runs until cancelled."""

    def __init__(self, api: Api, listener: NamespaceListener, metrics: ExtenderMetrics) -> None:
        self._api = api
        self._listener = listener
        self._metrics = metrics
        self._group: asyncio.TaskGroup | None = None
        self._running: tuple[NamespaceSink, asyncio.Task[None]] | None = None

    async def run(self) -> None:
        async with asyncio.TaskGroup() as self._group:
            await asyncio.Event().wait()

    async def watch_labels(self, keys: Collection[str], *, timeout_seconds: float | None) -> NamespaceLabels:
        """The labels with these keys of all namespaces, listed, and followed from now on; `run` must be running.

        Raises `SettingsError` when they cannot be read in time; the labels followed before still are.
        """
        if self._running is not None and self._running[0].labels.keys >= set(keys):
            return self._running[0].labels
        if not keys:
            return NamespaceLabels()
        sink, task = self._start(keys)
        try:
            async with asyncio.timeout(timeout_seconds):
                await sink.wait_until_listed()
        except TimeoutError as error:
            task.cancel()
            raise SettingsError(
                f"namespaces were not listed within {timeout_seconds:g} s, but namespace_labels need them; the log says "
                "why. The account needs list and watch of namespaces"
            ) from error
        self._replace((sink, task))
        return sink.labels

    def end_unused(self, keys: Collection[str]) -> None:
        """Stop watching if nothing in force needs labels; these are the keys still needed."""
        if not keys:
            self._replace(None)

    def _start(self, keys: Collection[str]) -> tuple[NamespaceSink, asyncio.Task[None]]:
        sink = NamespaceSink(NamespaceLabels(keys), self._listener, self._metrics)
        reflector = Reflector(self._api, "namespaces", NamespaceObject, sink)
        group = self._group
        if group is None:
            raise RuntimeError("the watcher of namespaces is not running")
        return sink, group.create_task(reflector.run())

    def _replace(self, running: tuple[NamespaceSink, asyncio.Task[None]] | None) -> None:
        if self._running is not None:
            self._running[1].cancel()
        self._running = running
