"""Puts changes of the configuration file into force while the service runs.

Fields that can change while running take effect, and a warning names the others; a file that cannot be used changes
nothing, and is tried again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from pydantic import BaseModel

from extender.events import EventReason
from extender.metrics import ExtenderMetrics
from extender.policy_file import PLACEMENT_FIELDS
from extender.settings import ExtenderConfiguration, load_settings
from vrampack.cards.pod import Pod
from vrampack.config.errors import SettingsError
from vrampack.config.strict import Overrides
from vrampack.file_watcher import FileWatcher
from vrampack.kube.events import EventRecorder

log = logging.getLogger(__name__)

RELOADABLE_FIELDS = PLACEMENT_FIELDS
"""Fields that take effect while running; `Components.apply_settings` applies each of them."""
POLL_SECONDS = 2.0
"""People who edit the file wait for it; kubelet brings a changed ConfigMap within a minute or two anyway."""


class SettingsListener(Protocol):
    """Uses the settings while the service runs."""

    async def on_settings_changed(self, settings: ExtenderConfiguration) -> None:
        """Apply settings in which at least one of `RELOADABLE_FIELDS` changed; the other fields are as at the start.

        Raises `SettingsError` when they cannot take effect; then nothing has changed.
        """


@dataclass(frozen=True, slots=True)
class ConfigurationSource:
    """Where the settings come from."""

    config: Path | None = None
    """None: the defaults."""
    overrides: Overrides = field(default_factory=dict)
    """Flags that win over that file."""
    policy_file: Path | None = None
    """Where policy, profiles and rules come from instead."""

    @property
    def paths(self) -> list[Path]:
        return [path for path in (self.config, self.policy_file) if path is not None]


NO_FILES = ConfigurationSource()


class ConfigurationEvents:
    """Writes events on the pod that the extender runs in; none when it was not told which pod that is."""

    def __init__(self, events: EventRecorder, pod: Pod | None) -> None:
        self._events = events
        self._pod = pod

    def report_applied(self, generation: int, fields: Sequence[str], waiting: Sequence[str]) -> None:
        """The fields that took effect, and those that wait for a restart."""
        parts = [f"{', '.join(fields)} changed"] if fields else []
        parts += (
            [f"{', '.join(waiting)} changed and {'needs' if len(waiting) == 1 else 'need'} a restart"]
            if waiting
            else []
        )
        text = f"generation {generation} of the configuration is in force: {'; '.join(parts)}"
        if self._pod is not None:
            self._events.record_changing_event(
                self._pod, EventReason.CONFIGURATION_APPLIED, text, is_warning=bool(waiting)
            )

    def report_rejected(self, generation: int, text: str) -> None:
        text = f"generation {generation} of the configuration stays in force: {text}"
        if self._pod is not None:
            self._events.record_changing_event(self._pod, EventReason.CONFIGURATION_REJECTED, text, is_warning=True)


class ConfigReloader:
    """Follows one configuration file, and the policy file beside it."""

    def __init__(
        self,
        source: ConfigurationSource,
        *,
        settings: ExtenderConfiguration,
        metrics: ExtenderMetrics,
        listener: SettingsListener,
        events: ConfigurationEvents,
    ) -> None:
        self._source = source
        self._settings = settings
        self._label_keys = settings.build_placement().list_label_keys()
        """The labels that are read with every pod."""
        self._metrics = metrics
        self._listener = listener
        self._events = events
        self._watcher = FileWatcher(source.paths, self)
        self.generation = 1

    async def run(self) -> None:
        """Check the file periodically, until cancelled."""
        for path in self._source.paths:
            if await asyncio.to_thread(_is_stream, path):
                log.info("configuration not followed path=%s reason=%r", path, "not a file: changes need a restart")
                return
        while True:
            await asyncio.sleep(POLL_SECONDS)
            await self.reload_if_changed()

    async def reload_if_changed(self) -> None:
        """Check once, and read the file if it changed since the last check."""
        await self._watcher.reload_if_changed()

    def load_files(self) -> ExtenderConfiguration:
        return load_settings(self._source.config, self._source.overrides, self._source.policy_file)

    def report_failure(self, text: str) -> None:
        self._metrics.config_reload_failures.inc()
        self._set_not_in_force("rejected", is_so=True)
        text = "; ".join(text.splitlines())
        log.error("configuration not reloaded generation=%d error=%s", self.generation, text)
        self._events.report_rejected(self.generation, text)

    async def apply_files(self, loaded: ExtenderConfiguration) -> str:
        differing = list(_list_differing_fields(self._settings, loaded))
        names = [name for name in RELOADABLE_FIELDS if self._can_reload(name, loaded)]
        taken = [name for name in differing if name.partition(".")[0] in names]
        for name in differing:
            if name not in taken:
                log.warning("configuration change needs a restart field=%s path=%s", name, self._source.paths[0])
        if taken:
            fresh = {name: getattr(loaded, name) for name in names}
            settings = self._settings.model_copy(update=fresh)
            try:
                await self._listener.on_settings_changed(settings)
            except SettingsError as error:
                return str(error)
            self._settings = settings
            self.generation += 1
            self._metrics.config_generation.set(self.generation)
        waiting = [name for name in differing if name not in taken]
        self._set_not_in_force("rejected", is_so=False)
        self._set_not_in_force("restart", is_so=bool(waiting))
        if differing:
            self._events.report_applied(self.generation, taken, waiting)
        log.info(
            "configuration read path=%s generation=%d changed=%s",
            ",".join(map(str, self._source.paths)),
            self.generation,
            ",".join(taken) or "-",
        )
        return ""

    def _set_not_in_force(self, reason: str, *, is_so: bool) -> None:
        self._metrics.config_not_in_force.labels(reason).set(int(is_so))

    def _can_reload(self, name: str, loaded: ExtenderConfiguration) -> bool:
        """False for a change that names other labels: the pods have been read without them."""
        return name == "policy" or loaded.build_placement().list_label_keys() <= self._label_keys


def _is_stream(path: Path) -> bool:
    """A pipe (`--config <(..)`) can be read once; opening it again could wait for ever."""
    return path.exists() and not path.is_file()


def _list_differing_fields(old: BaseModel, new: BaseModel, within: str = "") -> Iterator[str]:
    """The paths of the fields that differ, as `docs/configuration.md` lists them."""
    for name in type(old).model_fields:
        before, after = getattr(old, name), getattr(new, name)
        if isinstance(before, BaseModel) and isinstance(after, BaseModel):
            if type(before) is type(after):  # another policy's weights are another model; the policy's name differs too
                yield from _list_differing_fields(before, after, f"{within}{name}.")
        elif before != after:
            yield within + name
