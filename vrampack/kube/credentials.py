"""The API server's address and our identity there: from a kubeconfig, or the service account of this pod.

Tokens expire and are replaced while we run. If a token cannot be read again, the last good one stays in use; the failure is
counted, and logged once. Time is monotonic: a clock that is set back must not keep an expired token in use.
"""

from __future__ import annotations

import asyncio
import logging
import os
import re
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from ipaddress import ip_address, ip_network
from pathlib import Path
from typing import Protocol
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import yaml

from vrampack.kube.aio_client import Configuration, KubeConfigLoader, KubeConfigMerger, incluster_config, kube_config
from vrampack.kube.errors import CredentialsError

log = logging.getLogger(__name__)

TOKEN_FILE_SECONDS = 60.0
"""kubelet replaces a token when a fifth of its life is left, at least ten minutes."""
POD_NAMESPACE_FILE = Path(incluster_config.SERVICE_TOKEN_FILENAME).with_name("namespace")
RELOAD_SECONDS = 30.0
"""Between two runs of an exec plugin, however often the API server answers 401; also the time limit of a run."""
REFRESH_SHARE = 0.8
"""The share of a token's life after which the exec plugin is asked for the next one."""

_HEADER_TEXT = re.compile(r"[ -~]+")
_KUBECONFIG_ERRORS = (
    kube_config.ConfigException,
    OSError,
    yaml.YAMLError,
    TypeError,
    ValueError,
    LookupError,
    AttributeError,
    RecursionError,
)
"""What the client's loader raises; the last five if a kubeconfig has an unexpected structure."""


class RefreshFailureObserver(Protocol):
    """Called on every failure to read a token again."""

    def __call__(self) -> None: ...


def ignore_failure() -> None:
    """For programs without metrics."""


class TokenSource(Protocol):
    """Gives the value of the `Authorization` header."""

    def get_authorization(self) -> str | None:
        """The header's current value; None: send no header."""
        ...

    def note_unauthorized(self, authorization: str) -> None:
        """The API server answered 401 to this value."""
        ...

    async def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class FixedToken:
    """A value that never changes."""

    authorization: str | None = None

    def get_authorization(self) -> str | None:
        return self.authorization

    def note_unauthorized(self, authorization: str) -> None:
        """Ignored: there is no other value."""

    async def close(self) -> None:
        """Nothing to stop."""


@dataclass(frozen=True, slots=True)
class Credentials:
    """What a client of one API server needs: its address and authorities, and the token."""

    configuration: Configuration
    token: TokenSource = field(default_factory=FixedToken)


class TokenFile:
    """A token file that another program replaces, read once a minute and after a 401."""

    def __init__(
        self,
        path: Path,
        *,
        clock: Callable[[], float] = time.monotonic,
        on_failure: RefreshFailureObserver = ignore_failure,
    ) -> None:
        self._path = path
        self._clock = clock
        self._on_failure = on_failure
        self._is_failing = False
        self._authorization: str | None = None
        self._read_token()

    def get_authorization(self) -> str | None:
        if self._clock() - self._read_at >= TOKEN_FILE_SECONDS:
            self._read_token()
        return self._authorization

    def note_unauthorized(self, authorization: str) -> None:
        if authorization == self._authorization:
            self._read_token()

    async def close(self) -> None:
        """Nothing to stop."""

    def _read_token(self) -> None:
        self._read_at = self._clock()
        try:
            token = _check_token(self._path.read_text().strip())
        except (OSError, ValueError) as error:
            self._on_failure()
            if not self._is_failing:
                log.warning("token not read, the last one stays file=%s error=%s", self._path, error)
            self._is_failing = True
            return
        if self._is_failing:
            log.info("token read again file=%s", self._path)
        self._is_failing = False
        self._authorization = f"Bearer {token}"


@dataclass(frozen=True, slots=True)
class _LoadedKubeconfig:
    configuration: Configuration
    life_seconds: float | None
    """When the token expires, if the exec plugin said so."""

    @property
    def authorization(self) -> str | None:
        value: str | None = self.configuration.api_key.get("BearerToken")
        return value


class KubeconfigToken:
    """The token of a kubeconfig's user, loaded again before it expires and after a 401.

    It is loaded in the background: an exec plugin may take seconds, and a call must not wait for it.
    """

    def __init__(
        self,
        kubeconfig: Path,
        context: str | None,
        loaded: _LoadedKubeconfig,
        *,
        clock: Callable[[], float],
        on_failure: RefreshFailureObserver,
    ) -> None:
        self._kubeconfig, self._context = kubeconfig, context
        self._clock = clock
        self._on_failure = on_failure
        self._is_failing = False
        self._refresh: asyncio.Task[None] | None = None
        self._tried_at = clock() - RELOAD_SECONDS
        self._keep(loaded)

    def get_authorization(self) -> str | None:
        if self._ends_at is not None and self._clock() >= self._ends_at:
            self._begin_refresh()
        return self._authorization

    def note_unauthorized(self, authorization: str) -> None:
        if authorization == self._authorization:
            self._begin_refresh()

    async def close(self) -> None:
        if self._refresh is not None:
            self._refresh.cancel()
            await asyncio.wait([self._refresh])

    def _keep(self, loaded: _LoadedKubeconfig) -> None:
        self._authorization = loaded.authorization
        life = loaded.life_seconds
        self._ends_at = None if life is None else self._clock() + life * REFRESH_SHARE

    def _begin_refresh(self) -> None:
        is_running = self._refresh is not None and not self._refresh.done()
        if not is_running and self._clock() - self._tried_at >= RELOAD_SECONDS:
            self._tried_at = self._clock()
            self._refresh = asyncio.create_task(self._reload())

    async def _reload(self) -> None:
        try:
            async with asyncio.timeout(RELOAD_SECONDS):
                loaded = await _load_kubeconfig(self._kubeconfig, self._context)
            _check_token(loaded.authorization)  # the client logs a failed plugin, and returns no token
        except _KUBECONFIG_ERRORS as error:
            self._on_failure()
            if not self._is_failing:
                log.warning("token not loaded, the last one stays kubeconfig=%s error=%s", self._kubeconfig, error)
            self._is_failing = True
            return
        self._is_failing = False
        self._keep(loaded)
        log.info("token loaded kubeconfig=%s", self._kubeconfig)


async def load_credentials(
    kubeconfig: Path | None,
    context: str | None = None,
    *,
    clock: Callable[[], float] = time.monotonic,
    on_failure: RefreshFailureObserver = ignore_failure,
) -> Credentials:
    """Load a kubeconfig's current context (several files, separated as for kubectl), or the pod's service account.

    Raises `CredentialsError`. `on_failure` is called on every later failure to read the token again.
    """
    try:
        if kubeconfig is not None:
            if not _exists(kubeconfig):
                raise CredentialsError(f"kubeconfig {kubeconfig}: no such file")
            loaded = await _load_kubeconfig(kubeconfig, context)
            token: TokenSource = KubeconfigToken(kubeconfig, context, loaded, clock=clock, on_failure=on_failure)
            if loaded.authorization is None:
                token = FixedToken()
            return Credentials(_apply_proxy(loaded.configuration), token)
        configuration = Configuration()
        kube_config.load_incluster_config(configuration, try_refresh_token=False)
    except _KUBECONFIG_ERRORS as error:
        where = f"kubeconfig {kubeconfig}" if kubeconfig else "service account of this pod"
        raise CredentialsError(
            f"{where}: {_describe_error(error)}; give --kubeconfig FILE outside a cluster"
        ) from error
    token = TokenFile(Path(incluster_config.SERVICE_TOKEN_FILENAME), clock=clock, on_failure=on_failure)
    return Credentials(_apply_proxy(configuration), token)


def read_namespace(kubeconfig: Path | None, context: str | None = None) -> str:
    """The namespace of the context, or of this pod; `default` if neither says, or cannot be read: `load_credentials` reports that."""
    try:
        if kubeconfig is None:
            return POD_NAMESPACE_FILE.read_text().strip() or "default"
        merged = KubeConfigMerger(str(kubeconfig)).config
        chosen = merged["contexts"].get_with_name(context or merged["current-context"])["context"]
        return str(chosen.safe_get("namespace") or "default")
    except _KUBECONFIG_ERRORS:
        return "default"


def _describe_error(error: Exception) -> str:
    if isinstance(error, OSError):
        return error.strerror or str(error)
    is_said = isinstance(error, kube_config.ConfigException | yaml.YAMLError)
    return str(error) if is_said else f"this is no kubeconfig ({type(error).__name__}: {error})"


def _check_token(text: str | None) -> str:
    """Return the text. Raises `ValueError` if no header can carry it."""
    if text is None or not _HEADER_TEXT.fullmatch(text):
        raise ValueError("there is no token in it")
    return text


async def _load_kubeconfig(kubeconfig: Path, context: str | None) -> _LoadedKubeconfig:
    configuration = Configuration()
    merged = KubeConfigMerger(str(kubeconfig)).config
    for user in merged.value["users"]:
        if user.value.get("user") is None:
            user.value["user"] = {}  # kubectl accepts a user without credentials, the client's loader does not
    loader = KubeConfigLoader(config_dict=merged, config_base_path=None, active_context=context)
    await loader.load_and_set(configuration)
    ends: datetime | None = getattr(loader, "exec_plugin_expiry", None)
    return _LoadedKubeconfig(configuration, None if ends is None else (ends - datetime.now(UTC)).total_seconds())


def _apply_proxy(configuration: Configuration) -> Configuration:
    """Without a `proxy-url`, the proxy that the environment names."""
    host, proxies = urlsplit(configuration.host), getproxies()
    is_direct = proxy_bypass(host.hostname or "") or _is_in_networks(host.hostname or "", proxies.get("no", ""))
    if configuration.proxy is None and not is_direct:
        configuration.proxy = proxies.get(host.scheme)
    return configuration


def _is_in_networks(host: str, entries: str) -> bool:
    """Whether the address is in a network of `NO_PROXY`, such as 10.96.0.0/12. kubectl reads these, `proxy_bypass` does not."""
    return any(_contains(entry.strip(), host) for entry in entries.split(",") if "/" in entry)


def _contains(network: str, address: str) -> bool:
    """False if either is none."""
    try:
        return ip_address(address) in ip_network(network, strict=False)
    except ValueError:
        return False


def _exists(kubeconfig: Path) -> bool:
    """Whether any of the files exists: `$KUBECONFIG` may name several."""
    return any(Path(part).exists() for part in str(kubeconfig).split(os.pathsep))
