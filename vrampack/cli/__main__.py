"""`python -m vrampack.cli` is `vrampack`."""

from __future__ import annotations

import sys

from vrampack.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
