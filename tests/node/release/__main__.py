"""`VERSION=0.1.0 python -m tests.node.release [ARGUMENTS OF PYTEST]`: the tests of this folder, on a node without our image."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from release.programs import build_program
from tests.alerts.programs import locate_programs
from tests.node.__main__ import main as run_on_a_node
from tests.support.chart.kinds import list_definitions


def main(arguments: Sequence[str]) -> int:
    """The exit code of pytest, or 1 if the machine is not as it was."""
    locate_programs()
    list_definitions()
    build_program("cosign")  # inside there is no network, which a build may need
    return run_on_a_node(["-m", "release", "-s", "tests/node/release", *arguments], has_product=False)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
