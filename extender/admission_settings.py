"""The admission webhook's configuration: a separate file, because the webhook is a separate program.

`docs/configuration.md` lists the fields; a test compares the two.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, model_validator

from vrampack.cards import well_known
from vrampack.config.addresses import ListenAddress, OptionalListenAddress, ResourceName
from vrampack.config.faults import InvalidFieldError
from vrampack.config.strict import Overrides, StrictModel, load_configuration


class AdmissionListenSettings(StrictModel):
    """The addresses on which the webhook listens."""

    admission: ListenAddress = "0.0.0.0:12348"
    """Where the webhook answers the API server, over TLS. Set 127.0.0.1:12348 if the API server is on the same host."""

    health: OptionalListenAddress = "127.0.0.1:12349"
    """Where the webhook answers health and metrics. Set 0.0.0.0:12349 if probes and scrapers come from outside; empty: no listener."""


class AdmissionTlsSettings(StrictModel):
    """The webhook's TLS files. They are read again when they change."""

    cert_file: Path | None = Field(default=None, strict=False)
    """PEM certificate chain for the webhook's Service. Always required."""

    key_file: Path | None = Field(default=None, strict=False)
    """PEM key of that certificate. Always required."""

    client_ca_file: Path | None = Field(default=None, strict=False)
    """PEM certificate of the authority that signed the client certificate of the API servers. If it is given, all other clients are refused."""


class AdmissionResourceSettings(StrictModel):
    """What the cluster calls the memory of cards."""

    memory: ResourceName = well_known.MEMORY_RESOURCE
    """The resource that pods request: the same as in the extender's configuration."""


class AdmissionDeadlineSettings(StrictModel):
    """How long the webhook waits, in seconds."""

    receive_seconds: float = Field(default=10.0, gt=0, le=120)
    """For a request, from its first byte to its last. Raise it only for very slow networks."""

    drain_seconds: float = Field(default=5.0, ge=0, le=60)
    """How long a stopping webhook goes on answering. Raise it if the Service sends calls to a stopping pod for longer."""


class AdmissionWebhookConfiguration(StrictModel):
    """The whole file."""

    apiVersion: Literal["vrampack.dev/v1"]  # noqa: N815 - Kubernetes' own spelling
    kind: Literal["AdmissionWebhookConfiguration"]

    listen: AdmissionListenSettings = AdmissionListenSettings()
    tls: AdmissionTlsSettings = AdmissionTlsSettings()
    resources: AdmissionResourceSettings = AdmissionResourceSettings()
    deadlines: AdmissionDeadlineSettings = AdmissionDeadlineSettings()

    scheduler_name: Annotated[str, Field(pattern=r"^([a-z0-9]([-a-z0-9.]*[a-z0-9])?)?$", examples=["vrampack"])] = ""
    """The scheduler for pods that request the resource and chose none: `vrampack` with a second scheduler. Empty: they keep theirs."""

    @model_validator(mode="after")
    def _require_tls(self) -> AdmissionWebhookConfiguration:
        if not (self.tls.cert_file and self.tls.key_file):
            raise InvalidFieldError(
                ("tls",), "an API server calls webhooks by TLS only; give tls.cert_file and tls.key_file"
            )
        return self


def load_admission_settings(path: Path | None, overrides: Overrides | None = None) -> AdmissionWebhookConfiguration:
    """The configuration of `path`.

    Raises `SettingsError` naming the path of every fault.
    """
    return load_configuration(AdmissionWebhookConfiguration, "AdmissionWebhookConfiguration", path, overrides)
