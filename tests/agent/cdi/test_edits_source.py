"""The edits for one card, from what NVIDIA's container toolkit really writes."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from pathlib import Path

import pytest

from tests.agent.cdi.real_specs import MIG_MINORS, CdiNode, profile_gpu, profile_instance
from vrampack.agent.cdi import edits_source
from vrampack.agent.cdi.card_edits import CardEdits, drop_drm_nodes
from vrampack.agent.cdi.errors import CdiError
from vrampack.agent.cdi.spec_document import CdiDeviceNode, CdiEdits, CdiMount
from vrampack.agent.nvml.driver import Gpu

CONTROL = {"/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools"}
LIMIT_HOOK = "apply-cuda-memory-limits"
SECOND_CAPABILITIES = {"/dev/nvidia-caps/nvidia-cap5", "/dev/nvidia-caps/nvidia-cap6"}
ROOT = "/run/nvidia/driver"
CARDS: dict[str, tuple[str, Gpu, set[str], str, int]] = {
    # spec, card, the card's nodes beside the control nodes, where the driver is, how often NVIDIA's limit hook is in
    "NVIDIA's device plugin": ("device-plugin.json", profile_gpu("v100x8", 5), {"/dev/nvidia5"}, ROOT, 1),
    "nvidia-cdi-refresh": ("host.json", profile_gpu("h200x8", 0), {"/dev/nvidia0"}, "", 1),
    "the management spec": ("management.json", profile_gpu("v100x8", 3), {"/dev/nvidia3"}, ROOT, 0),
    "an instance": ("host-mig.json", profile_instance(1), {"/dev/nvidia0"} | SECOND_CAPABILITIES, "", 0),
    "an instance by the management spec": (
        "management-mig.json",
        profile_instance(1),
        {"/dev/nvidia0"} | SECOND_CAPABILITIES,
        "",
        0,
    ),
}


def paths_of(found: CardEdits) -> set[str]:
    return {node.path for node in found.edits.device_nodes}


def words_of(found: CardEdits) -> list[str]:
    """The arguments of the hooks."""
    return [hook.args[1] for hook in found.edits.hooks]


@pytest.mark.parametrize(("spec", "gpu", "nodes", "root", "limit_hooks"), CARDS.values(), ids=CARDS)
async def test_edits_give_a_card_its_device_nodes_and_the_driver_but_no_other_card(
    spec: str, gpu: Gpu, nodes: set[str], root: str, limit_hooks: int, tmp_path: Path
) -> None:
    found = await CdiNode(tmp_path, spec, minors=MIG_MINORS).build_source().find_edits(gpu)
    assert paths_of(found) == CONTROL | nodes
    libraries = {mount.container_path: mount.host_path for mount in found.edits.mounts}
    inside = "/usr/lib/x86_64-linux-gnu/libcuda.so.615.71.09"
    assert libraries[inside] == root + inside
    assert {"create-symlinks", "update-ldcache", "enable-cuda-compat"} <= set(words_of(found))
    limited = [hook.args[-1] for hook in found.edits.hooks if hook.args[1] == LIMIT_HOOK]
    assert limited == [gpu.uuid] * limit_hooks


async def test_the_cards_own_spec_comes_before_the_management_spec(tmp_path: Path) -> None:
    node = CdiNode(tmp_path, "management.json")
    source, gpu = node.build_source(), profile_gpu("v100x8", 2)
    assert LIMIT_HOOK not in words_of(await source.find_edits(gpu))
    added = node.add_spec("device-plugin.json")
    assert LIMIT_HOOK in words_of(await source.find_edits(gpu))
    added.unlink()
    assert LIMIT_HOOK not in words_of(await source.find_edits(gpu))


async def test_spec_with_an_outdated_device_number_exposes_no_other_card(tmp_path: Path) -> None:
    """The card is /dev/nvidia6 now; its device in the spec still says /dev/nvidia5."""
    moved = replace(profile_gpu("v100x8", 5), minor=6)
    found = await CdiNode(tmp_path, "device-plugin.json").build_source().find_edits(moved)
    assert paths_of(found) == CONTROL | {"/dev/nvidia6"}
    assert [hook.args[-1] for hook in found.edits.hooks if LIMIT_HOOK in hook.args] == [moved.uuid]


async def test_mig_instance_created_after_the_spec_gets_its_own_capabilities(tmp_path: Path) -> None:
    fresh = replace(profile_instance(0), uuid="MIG-fresh", gpu_instance=7)
    minors = MIG_MINORS + "gpu0/gi7/access 66\ngpu0/gi7/ci0/access 67\n"
    node = CdiNode(tmp_path, "host-mig.json", minors=minors)
    found = await node.build_source().find_edits(fresh)
    assert paths_of(found) - CONTROL == {"/dev/nvidia0", *(f"/dev/nvidia-caps/nvidia-cap{n}" for n in (66, 67))}
    with pytest.raises(CdiError, match="MIG-unlisted"):
        await node.build_source().find_edits(replace(fresh, uuid="MIG-unlisted", gpu_instance=8))


async def test_device_nodes_for_graphics_are_given_only_on_request(tmp_path: Path) -> None:
    source = CdiNode(tmp_path, "host.json").build_source(has_drm_nodes=True)
    found = await source.find_edits(profile_gpu("h200x8", 1))
    assert paths_of(found) - CONTROL == {
        "/dev/nvidia1",
        "/dev/nvidia-modeset",
        "/dev/dri/card1",
        "/dev/dri/renderD129",
    }


def test_device_nodes_for_graphics_are_dropped_under_any_name() -> None:
    """Other programs write specs: a node may have another name inside, and a folder may be mounted."""
    card = CdiDeviceNode("/dev/nvidia0")
    hidden = [CdiDeviceNode("/dev/card", host_path="/dev/dri/card0"), CdiDeviceNode("/dev//dri/card0")]
    hidden += [
        CdiDeviceNode("/dev/any", major=226, minor=128),
        CdiDeviceNode("/dev/b", host_path="/dev/nvidia-modeset"),
    ]
    mounts = (CdiMount("/dev/dri", "/dev/shown"), CdiMount("/usr/lib/a.so", "/usr/lib/a.so"))
    found = drop_drm_nodes(CardEdits(CdiEdits(device_nodes=(card, *hidden), mounts=mounts), "0.5.0"))
    assert found.edits == CdiEdits(device_nodes=(card,), mounts=mounts[1:])


async def test_toolkit_program_runs_once_when_no_spec_lists_the_card(tmp_path: Path) -> None:
    node, runs = CdiNode(tmp_path, "management.json"), tmp_path / "runs"
    program = tmp_path / "nvidia-ctk"
    spec = Path(__file__).parent / "specs" / "host.json"
    program.write_text(f'#!/bin/sh\necho "$@" >>{runs}\ncat {spec}\n')
    program.chmod(0o755)
    source = node.build_source(generator=program)
    for place in (4, 4, 5):
        found = await source.find_edits(profile_gpu("h200x8", place))
        assert paths_of(found) - CONTROL == {f"/dev/nvidia{place}"}
        assert LIMIT_HOOK in words_of(found)
    assert runs.read_text().splitlines() == ["cdi generate --format=json --device-name-strategy=uuid --driver-root=/"]


async def test_the_management_spec_is_used_when_the_toolkits_program_fails(tmp_path: Path) -> None:
    program = tmp_path / "nvidia-ctk"
    program.write_text("#!/bin/sh\nexit 1\n")
    program.chmod(0o755)
    source = CdiNode(tmp_path, "management.json").build_source(generator=program)
    assert paths_of(await source.find_edits(profile_gpu("v100x8", 1))) == CONTROL | {"/dev/nvidia1"}


async def test_a_failed_toolkit_program_is_retried_once_for_all_callers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A toolkit that is just being installed. There is no other spec, and both wait for the same run."""
    monkeypatch.setattr(edits_source, "GENERATE_AGAIN_SECONDS", 0)
    program, runs = tmp_path / "nvidia-ctk", tmp_path / "runs"
    spec = Path(__file__).parent / "specs" / "host.json"
    gpu = profile_gpu("h200x8", 4)
    source = CdiNode(tmp_path).build_source(generator=program)
    with pytest.raises(CdiError):
        await source.find_edits(gpu)
    program.write_text("#!/bin/sh\nexit 1\n")
    program.chmod(0o755)
    with pytest.raises(CdiError):
        await source.find_edits(gpu)
    monkeypatch.setattr(edits_source, "GENERATE_AGAIN_SECONDS", 30)
    program.write_text(f"#!/bin/sh\necho run >>{runs}\ncat {spec}\n")
    for found in await asyncio.gather(source.find_edits(gpu), source.find_edits(gpu)):
        assert paths_of(found) - CONTROL == {"/dev/nvidia4"}
    assert runs.read_text() == "run\n"


async def test_device_numbers_from_before_a_reboot_are_not_used(tmp_path: Path) -> None:
    """The spec says 511 for nvidia-uvm, the kernel 505."""
    node = CdiNode(tmp_path, "host.json")
    (tmp_path / "proc" / "devices").write_text(
        "Character devices:\n195 nvidia\n505 nvidia-uvm\n\nBlock devices:\n  8 sd\n"
    )
    found = await node.build_source().find_edits(profile_gpu("h200x8", 0))
    numbers = {each.path: (each.major, each.minor) for each in found.edits.device_nodes}
    assert numbers["/dev/nvidia-uvm"] == (505, 0)
    assert numbers["/dev/nvidia-uvm-tools"] == (505, 1)
    assert numbers["/dev/nvidia0"] == (195, 0)


async def test_error_without_any_spec_names_the_service_that_writes_one(tmp_path: Path) -> None:
    node = CdiNode(tmp_path)
    (node.folder / "damaged.json").write_text("{")
    (node.folder / "claims.json").write_text(
        json.dumps({"cdiVersion": "0.5.0", "kind": "example.com/x", "devices": []})
    )
    with pytest.raises(CdiError, match="nvidia-cdi-refresh"):
        await node.build_source().find_edits(profile_gpu("v100x8", 0))


async def test_our_own_specs_are_not_read(tmp_path: Path) -> None:
    """A caller that waits for the runtime to read one would mistake our read for the runtime's."""
    node = CdiNode(tmp_path)
    node.add_spec("host.json").rename(node.folder / f"vrampack-{'0f' * 16}.json")
    with pytest.raises(CdiError):
        await node.build_source().find_edits(profile_gpu("h200x8", 0))
