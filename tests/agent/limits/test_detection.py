"""What is read from the files that runtimes and NVIDIA's toolkit leave on a node."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import pytest
import yaml

from vrampack.agent.inventory.cdi_files import MAX_FILE_BYTES
from vrampack.agent.limits.detection import NodeCapabilities, ToolkitState, detect_capabilities

MEMORY_HOOK = {
    "hookName": "createRuntime",
    "path": "/usr/bin/nvidia-cdi-hook",
    "args": ["nvidia-cdi-hook", "apply-cuda-memory-limits", "--gpu-id", "GPU-0"],
}
OTHER_HOOK = {
    "hookName": "createContainer",
    "path": "/usr/bin/nvidia-cdi-hook",
    "args": ["nvidia-cdi-hook", "update-ldcache"],
}
OUR_HOOK = {"hookName": "createRuntime", "path": "/opt/vrampack/bin/vrampack-hook"}


def a_cdi_file(
    *hooks: object, kind: str = "k8s.device-plugin.nvidia.com/gpu", common: bool = False
) -> dict[str, object]:
    edits = {"hooks": list(hooks)}
    device = {"name": "GPU-0", "containerEdits": {} if common else edits}
    return {"cdiVersion": "0.5.0", "kind": kind, "devices": [device], "containerEdits": edits if common else {}}


def found(folder: Path, *specs: Path) -> NodeCapabilities:
    return detect_capabilities(
        driver_version="615.71.09",
        has_mig=False,
        has_confidential_computing=False,
        cgroup_version=2,
        cdi_folders=[folder / "none", folder],
        runtime_specs=specs,
    )


TOOLKITS = {
    "per device": (a_cdi_file(OTHER_HOOK, MEMORY_HOOK), ToolkitState.READY),
    "common": (a_cdi_file(MEMORY_HOOK, common=True), ToolkitState.READY),
    "without the memory hook": (a_cdi_file(OTHER_HOOK), ToolkitState.OLD),
    "without hooks": (a_cdi_file(), ToolkitState.OLD),
    "of another kind": (a_cdi_file(MEMORY_HOOK, kind="management.nvidia.com/gpu"), ToolkitState.ABSENT),
    "the hook elsewhere": (a_cdi_file({**MEMORY_HOOK, "hookName": "poststop"}), ToolkitState.OLD),
    "a list": ([], ToolkitState.ABSENT),
    "odd all over": (
        {"kind": "k8s.device-plugin.nvidia.com/gpu", "devices": [1, {"containerEdits": 1}]},
        ToolkitState.OLD,
    ),
}


@pytest.mark.parametrize("suffix", ["json", "yaml", "yml"])
@pytest.mark.parametrize(("document", "want"), TOOLKITS.values(), ids=TOOLKITS)
def test_toolkit_is_detected_by_the_hook_in_its_cdi_file(
    tmp_path: Path, document: object, want: ToolkitState, suffix: str
) -> None:
    dump = json.dumps if suffix == "json" else yaml.safe_dump
    (tmp_path / f"nvidia.{suffix}").write_text(dump(document))
    assert found(tmp_path).toolkit is want


def test_missing_cdi_folder_means_no_toolkit(tmp_path: Path) -> None:
    assert found(tmp_path / "nowhere").toolkit is ToolkitState.ABSENT


def test_our_hook_is_found_in_a_cdi_file(tmp_path: Path) -> None:
    assert not found(tmp_path).has_hook
    (tmp_path / "vrampack.json").write_text(json.dumps(a_cdi_file(OUR_HOOK, kind="vrampack.dev/limit")))
    assert found(tmp_path).has_hook


@pytest.mark.parametrize(("moment", "want"), [("createRuntime", True), ("poststop", False)])
def test_our_hook_is_found_in_a_base_runtime_spec(tmp_path: Path, moment: str, want: bool) -> None:  # noqa: FBT001
    spec = tmp_path / "elsewhere" / "base.json"
    spec.parent.mkdir()
    spec.write_text(json.dumps({"ociVersion": "1.0.2", "hooks": {moment: [{"path": "/opt/x/vrampack-hook"}]}}))
    assert found(tmp_path, spec).has_hook is want
    assert not found(tmp_path, tmp_path / "gone.json").has_hook


@pytest.mark.parametrize(("stage", "want"), [("createRuntime", True), ("poststop", False)])
def test_our_hook_is_found_in_a_hook_file_of_crio(tmp_path: Path, stage: str, want: bool) -> None:  # noqa: FBT001
    hook = tmp_path / "elsewhere" / "vrampack.json"
    hook.parent.mkdir()
    document = {
        "version": "1.0.0",
        "hook": {"path": "/opt/x/vrampack-hook"},
        "when": {"always": True},
        "stages": [stage],
    }
    hook.write_text(json.dumps(document))
    assert found(tmp_path, hook).has_hook is want


BROKEN = {
    "json": b"{",
    "yaml": b"a: [",
    "no text": b"\xff\xfe",
    "deep": b"[" * 2_000,
    "huge": b" " * (MAX_FILE_BYTES + 1),
    "an object of Python's": b"!!python/object/apply:os.system ['false']",
}


@pytest.mark.parametrize("suffix", ["json", "yaml"])
@pytest.mark.parametrize("text", BROKEN.values(), ids=BROKEN)
def test_a_broken_file_is_logged_and_skipped(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, text: bytes, suffix: str
) -> None:
    (tmp_path / f"a.{suffix}").write_bytes(text)
    (tmp_path / "b.json").write_text(json.dumps(a_cdi_file(MEMORY_HOOK)))
    with caplog.at_level(logging.WARNING):
        assert found(tmp_path).toolkit is ToolkitState.READY
    assert f"a.{suffix}" in caplog.text


VERSIONS = {"615.71.09": 615, "595": 595, "": 0, "abc": 0, "-1.2": 0, "²": 0}


@pytest.mark.parametrize(("version", "branch"), VERSIONS.items())
def test_the_driver_branch_is_the_first_number(version: str, branch: int) -> None:
    findings = NodeCapabilities(
        version,
        cgroup_version=2,
        has_mig=False,
        has_confidential_computing=False,
        toolkit=ToolkitState.ABSENT,
        has_hook=False,
    )
    assert findings.driver_branch == branch
