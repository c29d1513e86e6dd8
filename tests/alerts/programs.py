"""Builds Prometheus, promtool and Alertmanager, at the versions that the modules in `programs` name.

`python -m tests.alerts.programs` builds what is missing in the cache and prints where each program lies.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from tests.support.build_cache import build_once, cache_root, fingerprint_of
from tests.support.go_module import GoModule

MODULES = Path(__file__).parent / "programs"
CACHE = "monitoring"
ALERTMANAGER = "github.com/prometheus/alertmanager"
TAGS = "-tags=remove_all_sd"
"""Targets are static here: without the clients of thirty clouds Prometheus is built in a third of the time."""


def locate_programs(environ: Mapping[str, str] = os.environ) -> Mapping[str, Path]:
    """Where `prometheus`, `promtool` and `alertmanager` lie; builds what is missing. Raises `RuntimeError` without Go."""
    flags = {**environ, "GOFLAGS": f"{environ.get('GOFLAGS', '')} {TAGS}".strip()}
    prometheus = GoModule(MODULES / "prometheus", CACHE, "github.com/prometheus/prometheus/cmd")
    alertmanager = GoModule(_prepare_alertmanager(environ), CACHE, f"{ALERTMANAGER}/cmd")
    folder = prometheus.build_programs(flags, "prometheus", "promtool")
    found = {name: folder / name for name in ("prometheus", "promtool")}
    return found | {"alertmanager": alertmanager.build_programs(flags, "alertmanager") / "alertmanager"}


def _prepare_alertmanager(environ: Mapping[str, str]) -> Path:
    """Its module with a copy of upstream's that can be built: the archive lacks the web pages that it embeds."""
    module = MODULES / "alertmanager"
    made_of = fingerprint_of(module / "go.mod", module / "go.sum", Path(__file__))

    def copy_sources(made: Path) -> None:
        shutil.copytree(module, made, dirs_exist_ok=True)
        shutil.copytree(_download(module, environ), made / "alertmanager", copy_function=shutil.copyfile)
        pages = made / "alertmanager" / "ui" / "app"
        pages.chmod(0o755)
        (pages / "dist").mkdir()
        (pages / "dist" / "index.html").write_text("<!doctype html><title>Alertmanager without its pages</title>\n")
        with (made / "go.mod").open("a") as file:
            file.write(f"\nreplace {ALERTMANAGER} => ./alertmanager\n")

    return build_once(cache_root(environ) / CACHE / f"sources-{made_of}", copy_sources)


def _download(module: Path, environ: Mapping[str, str]) -> Path:
    """Upstream's folder in Go's own cache, whose files have the checksums of go.sum."""
    go = shutil.which("go", path=environ.get("PATH"))
    if go is None:
        raise RuntimeError("go is not on PATH, and the programs of tests/alerts are built with Go 1.26")
    command = [go, "mod", "download", "-json", ALERTMANAGER]
    answer = subprocess.run(command, cwd=module, env=dict(environ), capture_output=True, text=True, check=True)
    return Path(json.loads(answer.stdout)["Dir"])


if __name__ == "__main__":
    for program_name, program_path in locate_programs().items():
        sys.stdout.write(f"{program_name}\t{program_path}\n")
