"""The TLS files of one listener, reloaded while it serves: its certificate, its key, and its clients' authority.

Every new connection gets the newest usable files; open connections keep theirs. New files are loaded into a separate
context, never into the one in use: if a certificate arrived a moment before its key, the listener would have no usable pair.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from typing import Protocol

from vrampack.file_watcher import FileWatcher
from vrampack.http.tls_context import TlsFiles, build_tls_context

log = logging.getLogger(__name__)

POLL_SECONDS = 2.0
"""Kubelet updates a changed Secret within a minute or two; people who edit a file by hand wait for it."""


class CertificateObserver(Protocol):
    """Reports on the certificates of a listener, beyond the log."""

    def on_check(self) -> None:
        """The files are about to be checked."""

    def on_loaded(self, certificate: bytes) -> None:
        """A PEM file is about to be used. Called in a worker thread; a `ValueError` refuses the file."""

    def on_failure(self) -> None:
        """Changed files cannot be used."""


class TlsReloader:
    """Serves the newest usable files. Raises `OSError` naming them when there are none at the start."""

    def __init__(self, listener: str, files: TlsFiles, observer: CertificateObserver | None = None) -> None:
        self._listener = listener
        self._files = files
        self._observer = observer
        paths = (files.cert_file, files.key_file, files.client_ca_file)
        self._watcher = FileWatcher([path for path in paths if path is not None], self)
        self._watcher.mark_loaded()
        self._newest = self.load_files()
        self.context = build_tls_context(files)
        """The context for the listener. Its own certificate is never used: each handshake gets the newest one."""
        self.context.sni_callback = self._select_context

    async def run(self) -> None:
        """Check the files periodically, until cancelled."""
        while True:
            if self._observer is not None:
                self._observer.on_check()
            await asyncio.sleep(POLL_SECONDS)
            await self.reload_if_changed()

    async def reload_if_changed(self) -> None:
        """Check once, and load the files if one of them changed since the last check, or could not be used."""
        await self._watcher.reload_if_changed()

    def load_files(self) -> ssl.SSLContext:
        context = build_tls_context(self._files)
        if self._observer is not None and self._files.cert_file is not None:
            self._observer.on_loaded(self._files.cert_file.read_bytes())
        return context

    async def apply_files(self, loaded: ssl.SSLContext) -> str:
        self._newest = loaded
        log.info("certificate read listener=%s path=%s", self._listener, self._files.cert_file)
        return ""

    def report_failure(self, text: str) -> None:
        if self._observer is not None:
            self._observer.on_failure()
        log.error("certificate not reloaded listener=%s error=%s", self._listener, text)

    def _select_context(
        self,
        connection: ssl.SSLSocket | ssl.SSLObject,
        name: str | None,  # noqa: ARG002 - ssl's own signature
        context: ssl.SSLContext,  # noqa: ARG002 - the same
    ) -> None:
        connection.context = self._newest
