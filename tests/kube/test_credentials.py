"""A token that cannot be reread stops nothing, and a replaced one is used, whatever the wall clock shows."""

from __future__ import annotations

import asyncio
import json
import logging
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from tests.fakes.upstream import FakeUpstream, http_reply
from tests.kube.sinks import RecordingSink, run_reflector
from vrampack.kube.aio_client import Configuration, incluster_config
from vrampack.kube.client import Api
from vrampack.kube.credentials import Credentials, TokenFile, load_credentials
from vrampack.kube.errors import RefusedError
from vrampack.kube.objects import PodObject

WITHIN_SECONDS = 20.0
CALLS_OF_A_RUN = 3000
"""More calls than fit into the time in which the plugin has begun to run, if it was started."""
UNAUTHORIZED = http_reply(b'{"kind":"Status","code":401,"reason":"Unauthorized"}', 401)


class CredentialsHarness:
    """A server that writes down what it was sent, a clock, and a count of failures."""

    def __init__(self, server: FakeUpstream, folder: Path) -> None:
        self.server = server
        self.file = folder / "token"
        self.file.write_text("first\n")
        self.seconds = 1000.0
        self.failures = 0

    def clock(self) -> float:
        return self.seconds

    def count_failure(self) -> None:
        self.failures += 1

    def open_file(self) -> Credentials:
        """Credentials from a token file, as for a pod's service account."""
        token = TokenFile(self.file, clock=self.clock, on_failure=self.count_failure)
        return Credentials(Configuration(host=f"http://127.0.0.1:{self.server.port}"), token)

    @property
    def sent(self) -> list[str]:
        """The tokens so far."""
        lines = [line for each in self.server.requests for line in each.split(b"\r\n")]
        return [line.split()[-1].decode() for line in lines if line.startswith(b"Authorization: Bearer ")]


@asynccontextmanager
async def open_client(credentials: Credentials) -> AsyncIterator[Api]:
    api = Api(credentials)
    try:
        yield api
    finally:
        await api.close()


@pytest.fixture
async def setting(tmp_path: Path) -> AsyncIterator[CredentialsHarness]:
    async with FakeUpstream() as server:
        yield CredentialsHarness(server, tmp_path)
        await server.events.put(b"")


async def test_a_replaced_token_is_read_within_a_minute(setting: CredentialsHarness) -> None:
    async with open_client(setting.open_file()) as api:
        await api.list_page("pods", limit=1)
        setting.file.write_text("second")
        setting.seconds += 59
        await api.list_page("pods", limit=1)
        setting.seconds += 1
        await api.list_page("pods", limit=1)
    assert setting.sent == ["first", "first", "second"]


SPOILED: dict[str, bytes | None] = {
    "gone": None,
    "empty": b"",
    "blank": b" \n",
    "two lines": b"a\nb",
    "no text": b"\xff\xfe",
}


@pytest.mark.parametrize("content", SPOILED.values(), ids=SPOILED)
async def test_a_file_without_a_token_keeps_the_last_token_in_use(
    setting: CredentialsHarness, content: bytes | None, caplog: pytest.LogCaptureFixture
) -> None:
    """The failure is counted each time and logged once; the next good token is used."""
    setting.server.replies += [http_reply(b'{"kind":"PodList","metadata":{"resourceVersion":"1"},"items":[]}')]
    sink: RecordingSink[PodObject] = RecordingSink()
    async with open_client(setting.open_file()) as api:
        if content is None:
            setting.file.unlink()
        else:
            setting.file.write_bytes(content)
        setting.seconds += 60
        async with run_reflector(api, sink):
            await sink.until(lambda: "list ends" in sink.told)
        setting.seconds += 60
        await api.list_page("pods", limit=1)
        assert set(setting.sent) == {"first"}
        assert setting.failures == 2
        setting.file.write_text("second")
        setting.seconds += 60
        await api.list_page("pods", limit=1)
    assert setting.sent[-1] == "second"
    assert [record.levelname for record in caplog.records if "token not read" in record.message] == ["WARNING"]


async def test_a_401_rereads_the_token_file_once(setting: CredentialsHarness) -> None:
    """The call that got the 401 is not repeated: its caller may have a deadline."""
    setting.server.replies += [UNAUTHORIZED]
    async with open_client(setting.open_file()) as api:
        setting.file.write_text("second")
        with pytest.raises(RefusedError):
            await api.list_page("pods", limit=1)
        await api.list_page("pods", limit=1)
    assert setting.sent == ["first", "second"]


async def test_the_token_of_a_pods_service_account_is_reread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "token").write_text("first")
    (tmp_path / "ca.crt").write_text("PEM")
    monkeypatch.setattr(incluster_config, "SERVICE_TOKEN_FILENAME", str(tmp_path / "token"))
    monkeypatch.setattr(incluster_config, "SERVICE_CERT_FILENAME", str(tmp_path / "ca.crt"))
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    seconds = 0.0
    credentials = await load_credentials(None, clock=lambda: seconds)
    assert credentials.configuration.host == "https://10.0.0.1:443"
    assert credentials.token.get_authorization() == "Bearer first"
    (tmp_path / "token").write_text("second")
    seconds = 60.0
    assert credentials.token.get_authorization() == "Bearer second"


PLUGIN = """
import json, pathlib, sys
runs, answer = map(pathlib.Path, sys.argv[1:])
count = len(runs.read_text()) + 1 if runs.exists() else 1
runs.write_text("x" * count)
status = json.loads(answer.read_text())
if status is None:
    sys.exit("no answer")
print(json.dumps({"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential",
                  "status": {"token": f"token-{count}"} | status}))
"""


class ExecHarness:
    """A kubeconfig with an exec plugin that counts its runs, and a client that uses it."""

    def __init__(self, server: FakeUpstream, folder: Path) -> None:
        self.server, self.folder = server, folder
        self.seconds = 1000.0
        self.failures = 0
        self.answer({})
        (folder / "plugin.py").write_text(PLUGIN)
        arguments = [str(folder / name) for name in ("plugin.py", "runs", "answer")]
        plugin = {"apiVersion": "client.authentication.k8s.io/v1", "command": sys.executable, "args": arguments}
        cluster = {"server": f"http://127.0.0.1:{server.port}"}
        written = {
            "current-context": "one",
            "contexts": [{"name": "one", "context": {"cluster": "here", "user": "me"}}],
            "clusters": [{"name": "here", "cluster": cluster}],
            "users": [{"name": "me", "user": {"exec": plugin}}],
        }
        (folder / "config").write_text(json.dumps(written))

    def clock(self) -> float:
        return self.seconds

    def count_failure(self) -> None:
        self.failures += 1

    def answer(self, status: dict[str, str] | None) -> None:
        """Set what the plugin answers from now on; None: it fails."""
        (self.folder / "answer").write_text(json.dumps(status))

    @property
    def runs(self) -> int:
        return len((self.folder / "runs").read_text())

    async def load(self) -> Credentials:
        return await load_credentials(self.folder / "config", clock=self.clock, on_failure=self.count_failure)

    async def until_sent(self, api: Api, token: str) -> None:
        """Call until the server is sent this token."""
        wanted = f"Authorization: Bearer {token}\r\n".encode()
        async with asyncio.timeout(WITHIN_SECONDS):
            while not (self.server.requests and wanted in self.server.requests[-1]):
                await api.list_page("pods", limit=1)


@pytest.fixture
async def plugin(tmp_path: Path) -> AsyncIterator[ExecHarness]:
    async with FakeUpstream() as server:
        yield ExecHarness(server, tmp_path)


async def test_an_exec_plugin_runs_again_before_its_token_expires(plugin: ExecHarness) -> None:
    ends = datetime.now(UTC) + timedelta(hours=1)
    plugin.answer({"expirationTimestamp": ends.strftime("%Y-%m-%dT%H:%M:%SZ")})
    async with open_client(await plugin.load()) as api:
        plugin.seconds += 2800
        await plugin.until_sent(api, "token-1")
        assert plugin.runs == 1
        plugin.seconds += 100
        await plugin.until_sent(api, "token-2")
    assert plugin.runs == 2


async def test_an_exec_plugin_runs_again_after_a_401_but_not_after_each(plugin: ExecHarness) -> None:
    async with open_client(await plugin.load()) as api:
        plugin.server.replies += [UNAUTHORIZED] * 3
        for _ in range(3):
            with pytest.raises(RefusedError):
                await api.list_page("pods", limit=1)
        await plugin.until_sent(api, "token-2")
        plugin.server.replies += [UNAUTHORIZED]
        with pytest.raises(RefusedError):
            await api.list_page("pods", limit=1)
        for _ in range(CALLS_OF_A_RUN):
            await api.list_page("pods", limit=1)
        assert plugin.runs == 2, "a server that refuses every token must not start a program for each call"


async def test_an_exec_plugin_that_fails_keeps_the_last_token_in_use(
    plugin: ExecHarness, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    async with open_client(await plugin.load()) as api:
        plugin.answer(None)
        for times in (1, 2):
            plugin.server.replies += [UNAUTHORIZED]
            with pytest.raises(RefusedError):
                await api.list_page("pods", limit=1)
            async with asyncio.timeout(WITHIN_SECONDS):
                while plugin.failures < times:
                    await plugin.until_sent(api, "token-1")
                    await asyncio.sleep(0)
            plugin.seconds += 30
        plugin.answer({})
        plugin.server.replies += [UNAUTHORIZED]
        with pytest.raises(RefusedError):
            await api.list_page("pods", limit=1)
        await plugin.until_sent(api, "token-4")
    assert [record.levelname for record in caplog.records if "token not loaded" in record.message] == ["WARNING"]


@pytest.mark.parametrize("user", [{"name": "a"}, {"name": "a", "user": None}], ids=["no user", "user: null"])
async def test_a_user_without_credentials_is_read_as_kubectl_reads_it(user: dict[str, object], tmp_path: Path) -> None:
    """No credentials are sent then, as to an API server that authenticates by address or not at all."""
    kubeconfig = {
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "here", "user": "a"}}],
        "clusters": [{"name": "here", "cluster": {"server": "http://127.0.0.1:1"}}],
        "users": [user],
    }
    file = tmp_path / "config"
    file.write_text(json.dumps(kubeconfig))
    credentials = await load_credentials(file)
    assert credentials.configuration.host == "http://127.0.0.1:1"
    assert credentials.token.get_authorization() is None
