"""What a kubeconfig sets, and how an unusable one is named."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fakes.upstream import FakeUpstream
from tests.support.recorded_api_calls import RecordedApiCalls
from vrampack.kube.client import Api
from vrampack.kube.credentials import load_credentials
from vrampack.kube.errors import CredentialsError
from vrampack.simulator.kubeconfig import write_kubeconfig

KUBECONFIG = """
apiVersion: v1
kind: Config
current-context: one
contexts:
- {name: one, context: {cluster: here, user: me}}
- {name: two, context: {cluster: here, user: nobody}}
clusters:
- {name: here, cluster: {server: "http://127.0.0.1:%d"}}
users:
- {name: me, user: {token: secret-of-me}}
- {name: nobody, user: {}}
"""


@pytest.mark.parametrize(("context", "has_token"), [(None, True), ("two", False)])
async def test_a_kubeconfig_sets_server_and_credentials(tmp_path: Path, context: str | None, has_token: bool) -> None:  # noqa: FBT001 - a table
    async with FakeUpstream() as upstream:
        (tmp_path / "config").write_text(KUBECONFIG % upstream.port)
        api = Api(
            await load_credentials(tmp_path / "config", context), observe=RecordedApiCalls(), user_agent="vrampack/test"
        )
        await api.list_page("pods", limit=1)
        await api.close()
    (request,) = upstream.requests
    assert (b"Authorization: Bearer secret-of-me\r\n" in request) == has_token
    assert b"User-Agent: vrampack/test\r\n" in request


SPOILED = {
    "no YAML": "a: [",
    "a list": "- 1\n",
    "a text": "hello\n",
    "empty": "",
    "contexts that are none": "apiVersion: v1\nkind: Config\ncurrent-context: one\ncontexts: 4\n",
    "a context without a cluster": KUBECONFIG.replace("cluster: here, ", ""),
    "a cluster that is none": KUBECONFIG.replace('{server: "http://127.0.0.1:%d"}', "7"),
}


@pytest.mark.parametrize("text", SPOILED.values(), ids=SPOILED)
async def test_an_invalid_kubeconfig_is_named_in_the_error(tmp_path: Path, text: str) -> None:
    (tmp_path / "config").write_text(text)
    with pytest.raises(CredentialsError, match="config: "):
        await load_credentials(tmp_path / "config")


async def test_missing_credentials_are_reported_with_the_fix(tmp_path: Path) -> None:
    (tmp_path / "config").write_text("apiVersion: v1\n")
    with pytest.raises(CredentialsError, match=r"config: .*give --kubeconfig FILE"):
        await load_credentials(tmp_path / "config")
    with pytest.raises(CredentialsError, match="none: no such file"):
        await load_credentials(tmp_path / "none")
    with pytest.raises(CredentialsError, match="service account of this pod"):
        await load_credentials(None)


PROXIES = {
    "none": ({}, None),
    "one": ({"https_proxy": "http://proxy:3128"}, "http://proxy:3128"),
    "one for others": ({"http_proxy": "http://proxy:3128"}, None),
    "not for this network": ({"https_proxy": "http://proxy:3128", "no_proxy": ".svc,no/network,10.0.0.0/8"}, None),
    "not for this host": ({"https_proxy": "http://proxy:3128", "no_proxy": "10.0.0.1,example.com"}, None),
}


@pytest.mark.parametrize(("environment", "proxy"), PROXIES.values(), ids=PROXIES)
async def test_the_environments_proxy_is_used_unless_it_excludes_the_host(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, environment: dict[str, str], proxy: str | None
) -> None:
    for name in ("http_proxy", "https_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    kubeconfig = write_kubeconfig(tmp_path, "https://10.0.0.1:6443")
    configuration = (await load_credentials(kubeconfig)).configuration
    assert configuration.proxy == proxy
