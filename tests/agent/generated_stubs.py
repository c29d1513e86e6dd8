"""Makes what `vrampack/agent/kubelet/generated` has of its `.proto` files: `python -m tests.agent.generated_stubs`."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[2]
FOLDER = Path("vrampack/agent/kubelet/generated")


def generate_stubs(into: Path) -> list[Path]:
    """Write the modules below `into`, as protoc makes them; their paths relative to it, sorted."""
    sources = sorted(str(source.relative_to(ROOT)) for source in (ROOT / FOLDER).glob("*.proto"))
    outputs = [f"--{kind}_out={into}" for kind in ("python", "pyi", "grpc_python")]
    subprocess.run(
        [sys.executable, "-m", "grpc_tools.protoc", "--proto_path=.", *outputs, *sources],
        cwd=ROOT,
        check=True,
        timeout=60,
    )
    return sorted(path.relative_to(into) for path in into.rglob("*_pb2*.py*"))


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        for made in generate_stubs(Path(folder)):
            shutil.copyfile(Path(folder) / made, ROOT / made)
            sys.stdout.write(f"{made}\n")
