"""What the pages call the cluster."""

from __future__ import annotations

from pathlib import Path

import pytest

from vrampack.cli.ui.cluster_name import name_cluster
from vrampack.kube.aio_client import Configuration
from vrampack.kube.credentials import Credentials

CASES = {
    "the current context": (("current-context: prod-eu\n",), None, "prod-eu (api.example:6443)"),
    "the one that a flag names": (("current-context: prod-eu\n",), "stage", "stage (api.example:6443)"),
    "the first of several files": (("{}\n", "current-context: b\n"), None, "b (api.example:6443)"),
    "no context": (("kind: Config\n",), None, "api.example:6443"),
    "this pod's account": ((), None, "api.example:6443"),
}


@pytest.mark.parametrize(("files", "context", "name"), CASES.values(), ids=CASES)
def test_a_cluster_is_called_by_its_context(
    tmp_path: Path, files: tuple[str, ...], context: str | None, name: str
) -> None:
    paths = [tmp_path / str(number) for number in range(len(files))]
    for path, text in zip(paths, files, strict=True):
        path.write_text(text)
    kubeconfig = Path(":".join(map(str, paths))) if paths else None
    credentials = Credentials(Configuration(host="https://user:secret@api.example:6443"))
    assert name_cluster(kubeconfig, context, credentials) == name
