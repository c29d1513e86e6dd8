"""A simulated CDI spec as NVIDIA's tools leave it on a node: every card by its uuid, and the driver for all of them.

The nodes have NVIDIA's own numbers and no driver behind them. The files of the fake driver lie over those of its one card.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path

from tests.fakes.nvml.profiles import StubGpu

SPEC_FOLDER = Path("/var/run/cdi")
MAJOR = 195
CONTROL_MINORS = {"/dev/nvidiactl": 255, "/dev/nvidia-modeset": 254}
OPTIONS = ["rw", "rbind", "rprivate"]


def write_nvidia_spec(gpus: tuple[StubGpu, ...], driver: Mapping[str, Path]) -> None:
    """As `nvidia-ctk cdi generate` would for these cards; `driver`: files of the host by their path in a container."""
    SPEC_FOLDER.mkdir(parents=True, exist_ok=True)
    paths = {gpu.uuid: f"/dev/nvidia{gpu.minor}" for gpu in gpus}
    common = {path: file for path, file in driver.items() if path not in paths.values()}
    document = {
        "cdiVersion": "0.5.0",
        "kind": "nvidia.com/gpu",
        "devices": [
            {
                "name": gpu.uuid,
                "containerEdits": {
                    "deviceNodes": [_describe_node(path, gpu.minor)],
                    "mounts": _describe_mounts({path: driver[path]} if path in driver else {}),
                },
            }
            for gpu in gpus
            for path in (paths[gpu.uuid],)
        ],
        "containerEdits": {
            "env": ["NVIDIA_VISIBLE_DEVICES=void"],
            "deviceNodes": [_describe_node(path, minor) for path, minor in CONTROL_MINORS.items()],
            "mounts": _describe_mounts(common),
        },
    }
    unfinished = SPEC_FOLDER / ".nvidia.json"
    unfinished.write_text(json.dumps(document))
    unfinished.rename(SPEC_FOLDER / "nvidia.json")


def remake_spec_folder() -> None:
    """As a boot does: the folder is empty, and NVIDIA's tools write what they had written."""
    spec = SPEC_FOLDER / "nvidia.json"
    text = spec.read_text() if spec.exists() else ""
    shutil.rmtree(SPEC_FOLDER, ignore_errors=True)
    if text:
        SPEC_FOLDER.mkdir()
        spec.write_text(text)


def _describe_node(path: str, minor: int) -> dict[str, object]:
    return {"path": path, "type": "c", "major": MAJOR, "minor": minor, "permissions": "rw"}


def _describe_mounts(files: Mapping[str, Path]) -> list[dict[str, object]]:
    return [{"hostPath": str(file), "containerPath": path, "options": OPTIONS} for path, file in files.items()]
