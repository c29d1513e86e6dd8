"""The certificate of one listener of the extender or the webhook: reloaded while it serves, and never expiring silently."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass

from extender.metrics import CertificateMetrics
from vrampack.config.errors import SettingsError
from vrampack.http.tls_context import TlsFiles
from vrampack.http.tls_reloader import TlsReloader

log = logging.getLogger(__name__)

REPEAT_WARNING_SECONDS = 3600.0
EXPIRY_WARNING_DIVISOR = 6
"""Warn when a sixth of its life is left: it should have been renewed when a third was left."""


@dataclass(frozen=True, slots=True)
class CertificateLife:
    """When a certificate is valid, in Unix seconds."""

    not_before: float
    not_after: float


class CertWatcher:
    """Serves the newest usable pair. Raises `SettingsError` naming the files when there is none at the start."""

    def __init__(
        self, listener: str, files: TlsFiles, metrics: CertificateMetrics, *, now: Callable[[], float]
    ) -> None:
        self._listener = listener
        self._path = files.cert_file
        self._expiry = metrics.expiry.labels(listener)
        self._failures = metrics.reload_failures.labels(listener)
        self._now = now
        self._warned_at = 0.0
        try:
            self._reloader = TlsReloader(listener, files, self)
        except OSError as error:
            raise SettingsError(str(error)) from error
        self.context = self._reloader.context

    async def run(self) -> None:
        """Check the files periodically, until cancelled."""
        await self._reloader.run()

    async def reload_if_changed(self) -> None:
        """Check once."""
        await self._reloader.reload_if_changed()

    def on_check(self) -> None:
        """Log that the certificate expires soon or has expired; at most once an hour."""
        now, life = self._now(), self._life
        if (
            life.not_after - now > (life.not_after - life.not_before) / EXPIRY_WARNING_DIVISOR
            or now - self._warned_at < REPEAT_WARNING_SECONDS
        ):
            return
        self._warned_at = now
        if now >= life.not_after:
            log.error("certificate expired listener=%s path=%s", self._listener, self._path)
        else:
            seconds = int(life.not_after - now)
            log.warning("certificate expires soon listener=%s path=%s seconds=%d", self._listener, self._path, seconds)

    def on_loaded(self, certificate: bytes) -> None:
        from cryptography import x509  # noqa: PLC0415 - 16 MB and 40 ms, which an extender without TLS need not spend

        leaf = x509.load_pem_x509_certificate(certificate)
        self._life = CertificateLife(leaf.not_valid_before_utc.timestamp(), leaf.not_valid_after_utc.timestamp())
        self._warned_at = 0.0
        self._expiry.set(self._life.not_after)
        log.info("certificate valid listener=%s ends=%d", self._listener, self._life.not_after)

    def on_failure(self) -> None:
        self._failures.inc()
