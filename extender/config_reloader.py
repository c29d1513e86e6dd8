"""Follows the configuration file while the service runs.

    look, every 2 s --the same file--> nothing
                    --another--> read --good--> what may change while running is in force; the rest is named
                                      --bad--> one ERROR line, and what was in force stays in force

Looking goes through the path: a ConfigMap is changed by swapping a symlink above the file, of which the file itself
hears nothing. Looking and reading are done in a worker thread; a file may lie on something slow.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from pydantic import BaseModel

from extender.metrics import ExtenderMetrics
from extender.settings import ExtenderConfiguration, load_settings
from vrampack.config.errors import SettingsError

log = logging.getLogger(__name__)

RELOADABLE_FIELDS = ("policy",)
"""Fields that take effect while running: whoever uses one is told by `apply`, or asks for it each time."""
POLL_SECONDS = 2.0
"""People who edit the file wait for it; kubelet brings a changed ConfigMap within a minute or two anyway."""

ConfigStamp = tuple[int, int, int] | None
"""Inode, time and size of a file; None when there is none to be seen."""
NEVER_SEEN: ConfigStamp = (0, 0, 0)
"""No file has it, so the first look reads: the file may have changed between its first reading and now."""


class ConfigReloader:
    """Looks at one file, and hands on what changed in it."""

    def __init__(
        self,
        path: Path,
        overrides: Mapping[str, str],
        *,
        settings: ExtenderConfiguration,
        metrics: ExtenderMetrics,
        apply_settings: Callable[[ExtenderConfiguration], None],
    ) -> None:
        self._path = path
        self._overrides = overrides
        self._settings = settings
        self._metrics = metrics
        self._apply_settings = apply_settings
        self._stamp: ConfigStamp = NEVER_SEEN
        self.generation = 1

    async def run(self) -> None:
        """Look for ever, until cancelled."""
        if await asyncio.to_thread(_is_stream, self._path):
            log.info("configuration cannot be read twice, changes need a restart path=%s", self._path)
            return
        while True:
            await asyncio.sleep(POLL_SECONDS)
            await self.reload_if_changed()

    async def reload_if_changed(self) -> None:
        """Look once, and read if it is another file than at the last look."""
        stamp = await asyncio.to_thread(_read_stamp, self._path)
        if stamp == self._stamp:
            return
        self._stamp = stamp  # from before reading: what is written meanwhile is seen by the next look
        try:
            loaded = await asyncio.to_thread(load_settings, self._path, self._overrides)
        except SettingsError as error:
            self._metrics.config_reload_failures.inc()
            text = "; ".join(str(error).splitlines())
            log.error("configuration not reloaded generation=%d error=%s", self.generation, text)  # noqa: TRY400 - the message says it all
            return
        self._apply_changes(loaded)

    def _apply_changes(self, loaded: ExtenderConfiguration) -> None:
        differing = list(_list_differing_fields(self._settings, loaded))
        taken = [field for field in differing if field.partition(".")[0] in RELOADABLE_FIELDS]
        for field in differing:
            if field not in taken:
                log.warning("configuration change needs a restart field=%s path=%s", field, self._path)
        if taken:
            fresh = {name: getattr(loaded, name) for name in RELOADABLE_FIELDS}
            self._settings = self._settings.model_copy(update=fresh)
            self._apply_settings(self._settings)
            self.generation += 1
            self._metrics.config_generation.set(self.generation)
        log.info(
            "configuration read path=%s generation=%d changed=%s", self._path, self.generation, ",".join(taken) or "-"
        )


def _read_stamp(path: Path) -> ConfigStamp:
    try:
        found = path.stat()
    except OSError:
        return None  # reading it says why
    return found.st_ino, found.st_mtime_ns, found.st_size


def _is_stream(path: Path) -> bool:
    """A pipe (`--config <(..)`) has said all it had to say, and reading it again could wait for ever."""
    return path.exists() and not path.is_file()


def _list_differing_fields(old: BaseModel, new: BaseModel, within: str = "") -> Iterator[str]:
    """The paths of the fields that differ, as `docs/configuration.md` lists them."""
    for name in type(old).model_fields:
        before, after = getattr(old, name), getattr(new, name)
        if isinstance(before, BaseModel) and isinstance(after, BaseModel):
            yield from _list_differing_fields(before, after, f"{within}{name}.")
        elif before != after:
            yield within + name
