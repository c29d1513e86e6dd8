"""What makes the image small: it works on real files, and fails where it must."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import uvloop.loop

from images import base_trim
from images.elf_symbols import strip_symbols
from images.environment_trim import AGENT_DISTRIBUTIONS, AGENT_PACKAGES, find_removed_paths, follow_imports


def test_a_pattern_without_a_file_stops_the_build(tmp_path: Path) -> None:
    (tmp_path / "kubernetes").mkdir()
    (tmp_path / "kubernetes/__init__.py").touch()
    with pytest.raises(LookupError, match="the package has changed"):
        find_removed_paths(tmp_path, "kubernetes/*.py")
    (tmp_path / "kubernetes/v1_pod.py").touch()
    assert find_removed_paths(tmp_path, "kubernetes/*.py") == [tmp_path / "kubernetes/v1_pod.py"]


GOOD = {
    "a module": "import json.decoder",
    "a name": "from json import JSONDecoder",
    "a module as a name": "from xml.etree import ElementTree",
    "beside it": "from . import decoder\nfrom .scanner import make_scanner",
    "for types only": "import typing as t\nif t.TYPE_CHECKING:\n    import json.gone\nelse:\n    import json.encoder",
}
BAD = {
    "a module": "import json.gone",
    "a name": "from json import gone",
    "beside it": "from .gone import x",
    "inside a function": "def late():\n    from json import gone",
    "in the other half": "if TYPE_CHECKING:\n    import json\nelse:\n    import json.gone",
}


@pytest.mark.parametrize("source", GOOD.values(), ids=GOOD)
def test_imports_that_work_are_followed(source: str) -> None:
    follow_imports("json", source)


@pytest.mark.parametrize("source", BAD.values(), ids=BAD)
def test_an_import_of_something_removed_is_found(source: str) -> None:
    with pytest.raises(ImportError, match="gone"):
        follow_imports("json", source)


LOAD = """
import importlib.machinery, importlib.util, sys
loader = importlib.machinery.ExtensionFileLoader(sys.argv[1], sys.argv[2])
module = importlib.util.module_from_spec(importlib.util.spec_from_loader(sys.argv[1], loader))
loader.exec_module(module)
print(module.Loop)
"""


def test_a_stripped_module_is_half_as_large_and_still_loads(tmp_path: Path) -> None:
    path = tmp_path / "loop.so"
    shutil.copy(uvloop.loop.__file__, path)
    before = path.stat().st_size
    lost = strip_symbols(path)
    assert path.stat().st_size == before - lost < before / 2
    done = subprocess.run([sys.executable, "-c", LOAD, "uvloop.loop", path], check=True, capture_output=True, text=True)
    assert done.stdout == "<class 'uvloop.loop.Loop'>\n"


def test_stripping_twice_changes_nothing_more(tmp_path: Path) -> None:
    path = tmp_path / "core.so"
    spec = importlib.util.find_spec("msgspec._core")
    assert spec is not None
    assert spec.origin is not None
    shutil.copy(spec.origin, path)
    strip_symbols(path)
    once = path.read_bytes()
    assert strip_symbols(path) == 0
    assert path.read_bytes() == once


def test_files_that_are_no_extension_modules_are_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "linker.so"
    path.write_text("INPUT(libc.so.6)")
    assert strip_symbols(path) == 0
    assert path.read_text() == "INPUT(libc.so.6)"


def test_the_extenders_image_lacks_exactly_the_removed_distributions() -> None:
    tops = {
        path.parts[0].removesuffix(".py")
        for name in AGENT_DISTRIBUTIONS
        for path in importlib.metadata.files(name) or ()
        if path.suffix in (".py", ".so") and ".." not in path.parts
    }
    assert {top for top in tops if top.isidentifier()} - {"example"} == set(AGENT_PACKAGES)


def test_pip_is_removed_from_a_base(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(base_trim, "check_imports", lambda: None)
    for name in ("usr/local/bin/pip3", "usr/lib/python3.13/ensurepip/__init__.py", "usr/lib/python3.13/os.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    assert base_trim.main(tmp_path) == 0
    assert [path.name for path in tmp_path.rglob("*") if path.is_file()] == ["os.py"]
