"""The TLS files of one listener, reloaded while the service runs: its certificate, its key, and its clients' authority.

Every new connection gets the newest usable files; open connections keep theirs. New files are loaded into a separate
context, never into the one in use: if a certificate arrived a moment before its key, the listener would have no usable pair.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Callable
from dataclasses import dataclass

from extender.file_watcher import FileWatcher
from extender.metrics import CertificateMetrics
from vrampack.config.errors import SettingsError
from vrampack.http.tls_context import TlsFiles, build_tls_context

log = logging.getLogger(__name__)

POLL_SECONDS = 2.0
"""As for the configuration. Kubelet updates a changed Secret within a minute or two; people who edit a file by hand wait for it."""
REPEAT_WARNING_SECONDS = 3600.0
EXPIRY_WARNING_DIVISOR = 6
"""Warn when a sixth of its life is left: it should have been renewed when a third was left."""


@dataclass(frozen=True, slots=True)
class CertificatePair:
    """A certificate in use, and its life in Unix seconds."""

    context: ssl.SSLContext
    not_before: float
    not_after: float


class CertWatcher:
    """Serves the newest usable pair. Raises `SettingsError` naming the files when there is none at the start."""

    def __init__(
        self, listener: str, files: TlsFiles, metrics: CertificateMetrics, *, now: Callable[[], float]
    ) -> None:
        self._listener = listener
        self._files = files
        self._expiry = metrics.expiry.labels(listener)
        self._failures = metrics.reload_failures.labels(listener)
        self._now = now
        self._warned_at = 0.0
        paths = (files.cert_file, files.key_file, files.client_ca_file)
        self._watcher = FileWatcher([path for path in paths if path is not None], self)
        self._watcher.mark_loaded()
        try:
            self._use_pair(self.load_files())
            self.context = build_tls_context(files)
        except OSError as error:
            raise SettingsError(str(error)) from error
        """The context for the listener. Its own certificate is never used: each handshake gets the newest one."""
        self.context.sni_callback = self._select_context

    async def run(self) -> None:
        """Check the files periodically, until cancelled."""
        while True:
            self.warn_of_expiry()
            await asyncio.sleep(POLL_SECONDS)
            await self.reload_if_changed()

    async def reload_if_changed(self) -> None:
        """Check once, and load the files if one of them changed since the last check."""
        await self._watcher.reload_if_changed()

    def load_files(self) -> CertificatePair:
        from cryptography import x509  # noqa: PLC0415 - 16 MB and 40 ms, which an extender without TLS need not spend

        context = build_tls_context(self._files)
        if self._files.cert_file is None:
            raise ValueError("tls.cert_file is not given")
        leaf = x509.load_pem_x509_certificate(self._files.cert_file.read_bytes())
        return CertificatePair(context, leaf.not_valid_before_utc.timestamp(), leaf.not_valid_after_utc.timestamp())

    async def apply_files(self, loaded: CertificatePair) -> None:
        self._use_pair(loaded)
        log.info(
            "certificate read listener=%s path=%s ends=%d", self._listener, self._files.cert_file, loaded.not_after
        )

    def report_failure(self, error: OSError | ValueError) -> None:
        self._failures.inc()
        log.error("certificate not reloaded listener=%s error=%s", self._listener, error)

    def warn_of_expiry(self) -> None:
        """Log that the certificate expires soon or has expired; at most once an hour."""
        now, pair = self._now(), self._pair
        if (
            pair.not_after - now > (pair.not_after - pair.not_before) / EXPIRY_WARNING_DIVISOR
            or now - self._warned_at < REPEAT_WARNING_SECONDS
        ):
            return
        self._warned_at = now
        path = self._files.cert_file
        if now >= pair.not_after:
            log.error("certificate expired listener=%s path=%s", self._listener, path)
        else:
            seconds = int(pair.not_after - now)
            log.warning("certificate expires soon listener=%s path=%s seconds=%d", self._listener, path, seconds)

    def _select_context(
        self,
        connection: ssl.SSLSocket | ssl.SSLObject,
        name: str | None,  # noqa: ARG002 - ssl's own signature
        context: ssl.SSLContext,  # noqa: ARG002 - the same
    ) -> None:
        connection.context = self._pair.context

    def _use_pair(self, pair: CertificatePair) -> None:
        self._pair = pair
        self._warned_at = 0.0
        self._expiry.set(pair.not_after)
