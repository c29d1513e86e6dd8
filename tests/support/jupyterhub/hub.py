"""A hub with its proxy, on the values of `docs/recipes/jupyterhub`, which it gives to KubeSpawner as the chart does.

with run_hub(HubSite(...)) as hub:
    hub.start_server("alice", profile="gpu-4")
"""

from __future__ import annotations

import json
import secrets
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from tests.support.jupyterhub.programs import HubPrograms
from tests.support.manifests import load_documents
from tests.support.processes import LOOPBACK, REPOSITORY, ManagedProcess, choose_free_ports

VALUES = REPOSITORY / "docs" / "recipes" / "jupyterhub" / "values.yaml"
CULLER, TESTER = "jupyterhub-idle-culler", "tester"
CULLER_SCOPES = ["list:users", "read:users:activity", "read:servers", "delete:servers"]
"""As the chart has them."""
READY_SECONDS = 120
CALL_SECONDS = 30


@dataclass(frozen=True, slots=True)
class HubSite:
    """Where a hub runs, and what a user's pod runs instead of Jupyter: for the hub any web server will do."""

    directory: Path
    programs: HubPrograms
    kubeconfig: Path
    image: str
    command: list[str]


@dataclass(frozen=True, slots=True)
class LiveHub:
    """A running one. Calls have the rights of an administrator."""

    site: HubSite
    url: str
    tokens: Mapping[str, str]
    process: ManagedProcess

    def add_users(self, *names: str) -> None:
        self._call("POST", "/users", {"usernames": names})

    def start_server(self, user: str, *, profile: str) -> None:
        """Request a server as the user's form does; the pod is created soon, and ready when it can be."""
        self._call("POST", f"/users/{user}/server", {"profile": profile})

    def has_ready_server(self, user: str) -> bool:
        return any(each["ready"] for each in self._call("GET", f"/users/{user}")["servers"].values())

    def report_activity(self, user: str) -> None:
        """Report activity as a server in use does: it does not count as idle for the next 50 minutes."""
        when = (datetime.now(UTC) + timedelta(minutes=50)).isoformat()
        self._call("POST", f"/users/{user}/activity", {"servers": {"": {"last_activity": when}}})

    @contextmanager
    def idle_culler(self, *, timeout_seconds: int, every_seconds: int) -> Iterator[ManagedProcess]:
        """The culler with the flags that the chart makes of the recipe's values, but for the two that say how long it waits."""
        flags = [f"--url={self.url}", f"--timeout={timeout_seconds}", f"--cull-every={every_seconds}"]
        flags.append(f"--max-age={read_values()['cull']['maxAge']}")
        process = ManagedProcess(
            CULLER,
            [self.site.programs.python, "-m", "jupyterhub_idle_culler", *flags],
            directory=self.site.directory,
            environment={"JUPYTERHUB_API_TOKEN": self.tokens[CULLER]},
        )
        process.start()
        try:
            yield process
        finally:
            process.kill()

    def _call(self, method: str, path: str, body: object = None) -> Any:  # noqa: ANN401 - the answer as JSON, asserted where it is read
        asked = urllib.request.Request(  # noqa: S310 - our own http address
            f"{self.url}{path}",
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={"Authorization": f"token {self.tokens[TESTER]}"},
        )
        with urllib.request.urlopen(asked, timeout=CALL_SECONDS) as answer:  # noqa: S310 - as above
            text = answer.read()
        return json.loads(text) if text else None


def read_values() -> dict[str, Any]:
    (values,) = load_documents(VALUES)
    return dict(values)


@contextmanager
def run_hub(site: HubSite) -> Iterator[LiveHub]:
    """A hub that is ready; it ends with the block, and its users' pods stay."""
    site.directory.mkdir()
    public, api, proxy = choose_free_ports(3)
    tokens = {name: secrets.token_hex(16) for name in (CULLER, TESTER)}
    configuration = site.directory / "jupyterhub_config.json"
    configuration.write_text(json.dumps(_configure(site, tokens, public=public, api=api, proxy=proxy)))
    process = ManagedProcess(
        "jupyterhub",
        [site.programs.python, "-m", "jupyterhub", f"--config={configuration}"],
        directory=site.directory,
        environment={"KUBECONFIG": str(site.kubeconfig), "CONFIGPROXY_AUTH_TOKEN": secrets.token_hex(16)},
    )
    process.start()
    try:
        process.wait_ready(f"http://{LOOPBACK}:{public}/hub/health", timeout_seconds=READY_SECONDS)
        yield LiveHub(site, f"http://{LOOPBACK}:{api}/hub/api", tokens, process)
        assert not process.has_crashed, process.log_tail()
    finally:
        process.kill()


def _configure(site: HubSite, tokens: Mapping[str, str], *, public: int, api: int, proxy: int) -> dict[str, object]:
    """What of the recipe concerns KubeSpawner, as the chart passes it on; the rest is about this machine."""
    return {
        "JupyterHub": {
            "bind_url": f"http://{LOOPBACK}:{public}",
            "hub_bind_url": f"http://{LOOPBACK}:{api}",
            "db_url": f"sqlite:///{site.directory / 'hub.sqlite'}",
            "cookie_secret_file": str(site.directory / "cookie_secret"),
            "spawner_class": "kubespawner.KubeSpawner",
            "authenticator_class": "dummy",
            "services": [{"name": name, "api_token": token} for name, token in tokens.items()],
            "load_roles": [
                {"name": CULLER, "scopes": CULLER_SCOPES, "services": [CULLER]},
                {"name": TESTER, "scopes": ["admin:users", "admin:servers", "users:activity"], "services": [TESTER]},
            ],
        },
        "Authenticator": {"allow_all": True},
        "ConfigurableHTTPProxy": {
            "command": str(site.programs.proxy),
            "api_url": f"http://{LOOPBACK}:{proxy}",
            "pid_file": str(site.directory / "proxy.pid"),
        },
        "KubeSpawner": {
            "namespace": "default",
            "profile_list": read_values()["singleuser"]["profileList"],
            "image": site.image,
            "cmd": site.command,
            "start_timeout": 300,
            "http_timeout": 60,
        },
    }
