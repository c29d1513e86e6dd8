"""`kubectl-inspect-cgpu` of the installed package: kubectl finds it on PATH and runs it as `kubectl inspect cgpu`.

`kubectl_plugin.py` makes the same command as one file, for machines without the package.
"""

from __future__ import annotations

from vrampack.cli.inspect.main import run_as_plugin
from vrampack.cli.version import VERSION


def main() -> int:
    """The plugin with the arguments of this process; returns the exit code."""
    return run_as_plugin(VERSION)
