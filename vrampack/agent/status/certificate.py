"""The certificate of the metrics listener: the newest usable one, for each new connection.

The files are checked when a client connects, at most every two seconds: an idle listener needs no fresh certificate. They are
in a Secret's volume, which is in memory, so the check needs no thread.
"""

from __future__ import annotations

import logging
import ssl
from collections.abc import Callable

from vrampack.agent.settings import MetricsTlsSettings
from vrampack.http.tls_context import build_tls_context

log = logging.getLogger(__name__)

LOOK_SECONDS = 2.0


class ServerCertificate:
    """The certificate of one listener. Raises `OSError` naming the files if they cannot be used at the start."""

    def __init__(self, files: MetricsTlsSettings, *, clock: Callable[[], float]) -> None:
        self._files = files
        self._clock = clock
        self._looked_at = clock()
        self._stamp = self._read_stamp()
        self._context = build_tls_context(files)

    def get_context(self) -> ssl.SSLContext:
        """The context for one connection. If new files cannot be used, the previous ones stay in use."""
        now = self._clock()
        if now - self._looked_at >= LOOK_SECONDS:
            self._looked_at = now
            self._reload_if_changed()
        return self._context

    def _reload_if_changed(self) -> None:
        stamp = self._read_stamp()
        if stamp == self._stamp:
            return
        self._stamp = stamp
        try:
            self._context = build_tls_context(self._files)
        except OSError as error:
            log.warning("certificate not reloaded listener=metrics error=%s", error)
        else:
            log.info("certificate read listener=metrics path=%s", self._files.cert_file)

    def _read_stamp(self) -> tuple[tuple[int, int, int], ...] | None:
        """Inode, time and size of each file; None if one cannot be read."""
        paths = (self._files.cert_file, self._files.key_file, self._files.client_ca_file)
        try:
            found = [path.stat() for path in paths if path is not None]
        except OSError:
            return None
        return tuple((each.st_ino, each.st_mtime_ns, each.st_size) for each in found)
