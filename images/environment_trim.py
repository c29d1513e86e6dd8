"""Removes from an environment what the program never loads, and checks that the rest can still be imported.

Nine tenths of the Kubernetes client are classes for objects and for groups of the API. It imports them on first use, and
we never use one: we send paths and read bytes. A later client may think otherwise, so this fails, and with it the build,
when something on the list is not there any more, or when anything that is left cannot be imported.

`python -m images.environment_trim all|extender ARCH`: for another architecture than this machine's nothing is imported
here, but in the last step of the build (`base_trim.py`), on the image's own interpreter.
"""

from __future__ import annotations

import ast
import importlib
import importlib.util
import pkgutil
import platform
import shutil
import sys
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

from images.elf_symbols import strip_symbols

REMOVED_PATTERNS = (
    "kubernetes/aio/client/api/*_api.py",
    "kubernetes/aio/client/models/*.py",
    "kubernetes/client/api/*_api.py",
    "kubernetes/client/models/*.py",
    # Authorities for TLS. We speak gRPC on unix sockets alone.
    "grpc/_cython/_credentials/roots.pem",
    # Sources and declarations, for those who build on these packages.
    "**/*.pyx",
    "**/*.pxd",
    "**/*.pyi",
    # Tests that were packaged.
    "**/tests",
    "kubernetes/**/*_test.py",
)
"""Patterns below `site-packages`; an `__init__.py` is never removed by name."""

COMMANDS = ("vrampack", "python", "python3")
"""What stays in `bin`, beside the interpreter's own versioned name."""

OWN_PACKAGES = ("vrampack", "extender", "policies")
CLIENT_PACKAGES = ("kubernetes.aio.client", "kubernetes.aio.config")
"""The packages of the client that we call. What they import, even inside a function, has to be there."""


AGENT_DISTRIBUTIONS = ("grpcio", "protobuf", "nvidia-ml-py")
"""What only the agent talks with, to kubelet and to the driver: an extender's image has none of it."""
AGENT_PACKAGES = ("grpc", "google", "pynvml")
"""Their packages: a module of ours may lack these where they were left out, and no others."""
MACHINES = {"amd64": "x86_64", "arm64": "aarch64"}


def main(parts: str, arch: str) -> int:
    """Trim the environment that runs this to these parts, `all` or `extender`; returns the exit code."""
    site = next(Path(entry) for entry in sys.path if entry.endswith("site-packages"))
    _remove_path(site / "bin")
    removed = sum(_remove_path(path) for pattern in REMOVED_PATTERNS for path in find_removed_paths(site, pattern))
    if parts == "extender":
        removed += sum(remove_distribution(site, name) for name in AGENT_DISTRIBUTIONS)
        removed += _remove_path(Path(sys.prefix) / "lib/vrampack")
    stripped = sum(strip_symbols(path) for path in site.rglob("*.so*"))
    for path in (Path(sys.prefix) / "bin").iterdir():
        if path.name not in COMMANDS and not path.name.startswith("python3."):
            path.unlink()
    if MACHINES.get(arch, platform.machine()) == platform.machine():
        check_imports()
    sys.stdout.write(f"removed {removed >> 20} MiB, stripped {stripped >> 20} MiB\n")
    return 0


def check_imports() -> None:
    """Import all that is left of ours, and all that the client's packages would. Raises `ImportError` where that fails."""
    for package in OWN_PACKAGES:
        import_modules(package)
    for package in CLIENT_PACKAGES:
        (folder,) = importlib.import_module(package).__path__
        for path in sorted(Path(folder).glob("*.py")):
            follow_imports(package, path.read_text(encoding="utf-8"))


def remove_distribution(site: Path, name: str) -> int:
    """Remove an installed distribution; returns the bytes. Raises `PackageNotFoundError`."""
    tops = {file.parts[0] for file in metadata.distribution(name).files or ()} - {"..", "bin"}
    return sum(_remove_path(site / top) for top in tops)


def find_removed_paths(site: Path, pattern: str) -> list[Path]:
    """What a pattern removes. Raises `LookupError` when that is nothing: then the list is out of date."""
    paths = [path for path in site.glob(pattern) if path.name != "__init__.py"]
    if not paths:
        raise LookupError(f"{site / pattern}: no such file; the package has changed, look at REMOVED in {__file__}")
    return paths


def import_modules(package: str) -> None:
    """Import every module of a package, but not those that run when imported, nor the agent's without its parts."""
    module = importlib.import_module(package)
    for each in pkgutil.walk_packages(module.__path__, f"{package}."):
        if not each.name.endswith(".__main__"):
            _import_module(each.name)


def follow_imports(package: str, source: str) -> None:
    """Import what a module of that package would, also what it imports late. Raises `ImportError` if that fails."""
    for node in _walk_running_code(ast.parse(source)):
        if isinstance(node, ast.Import):
            for alias in node.names:
                importlib.import_module(alias.name)
        elif isinstance(node, ast.ImportFrom):
            module = importlib.import_module("." * node.level + (node.module or ""), package)
            for alias in node.names:
                if not hasattr(module, alias.name):
                    importlib.import_module(f"{module.__name__}.{alias.name}")


def _import_module(name: str) -> None:
    try:
        importlib.import_module(name)
    except ModuleNotFoundError as error:
        is_left_out = importlib.util.find_spec("grpc") is None
        if not (is_left_out and str(error.name).partition(".")[0] in AGENT_PACKAGES):
            raise


def _remove_path(path: Path) -> int:
    files = [each for each in (path, *path.rglob("*")) if each.is_file()]
    freed = sum(each.stat().st_size for each in files)
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)  # it may lie in a folder that is gone
    return freed


def _walk_running_code(node: ast.AST) -> Iterator[ast.AST]:
    """The node and all below it, but not what only a type checker sees."""
    yield node
    is_for_types = isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING")
    for child in node.orelse if isinstance(node, ast.If) and is_for_types else ast.iter_child_nodes(node):
        yield from _walk_running_code(child)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
