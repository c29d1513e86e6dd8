"""Which cards NVML lists, and what it says of each."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.agent.nvml.driver_harness import Simulate, a_library
from tests.fakes.nvml.machine import GPU_IS_LOST, NOT_SUPPORTED, without_gpu
from tests.fakes.nvml.profiles import A100_PARTS, partition_gpu, stub_gpus
from vrampack.agent.nvml.errors import DriverError


@pytest.mark.parametrize(
    ("profile", "memory_mib"),
    {
        "t4": [15109],
        "t4-15360": [15360],
        "v100": [16130],
        "v100x8": [16130] * 8,
        "a10-l4": [23028, 23034],
        "h200x8": [143771] * 8,
        "none": [],
    }.items(),
)
async def test_every_gpu_is_a_card(tmp_path: Path, simulate: Simulate, profile: str, memory_mib: list[int]) -> None:
    machine = simulate(profile)
    inventory = await a_library(tmp_path).list_gpus()
    assert [card.memory_mib for card in inventory.gpus] == memory_mib
    assert [card.uuid for card in inventory.gpus] == [gpu.uuid for gpu in machine.gpus]
    assert [card.index for card in inventory.gpus] == list(range(len(memory_mib)))
    assert inventory.driver_version == "615.71.09"
    assert not inventory.mig_gpus


async def test_a_card_has_its_bus_id_minor_and_numa_node(tmp_path: Path, simulate: Simulate) -> None:
    """NUMA is the PCI device's CPU node according to the kernel, where -1 means none."""
    simulate("a10-l4")
    for place, node in (("0000:01:00.0", "1\n"), ("0000:02:00.0", "-1\n")):
        (tmp_path / place).mkdir()
        (tmp_path / place / "numa_node").write_text(node)
    a10, l4 = (await a_library(tmp_path).list_gpus()).gpus
    assert (a10.model, a10.minor, a10.pci_bus_id, a10.numa) == ("NVIDIA A10", 0, "00000000:01:00.0", 1)
    assert (l4.model, l4.minor, l4.pci_bus_id, l4.numa) == ("NVIDIA L4", 1, "00000000:02:00.0", None)


async def test_mig_instances_are_cards_and_their_parent_is_not(tmp_path: Path, simulate: Simulate) -> None:
    """DP-11. An instance's index is (0 + 1) * 100 + its place on the GPU."""
    gpu = simulate("a100-mig").gpus[0]
    inventory = await a_library(tmp_path).list_gpus()
    assert [card.uuid for card in inventory.gpus] == [part.uuid for part in gpu.instances]
    assert [card.index for card in inventory.gpus] == [100, 101, 102, 103]
    assert [card.memory_mib for card in inventory.gpus] == [19968, 9856, 4864, 4864]
    assert {card.mig_parent for card in inventory.gpus} == {gpu.uuid}
    assert inventory.gpus[0].model == "NVIDIA A100-SXM4-40GB MIG 3g.20gb"
    assert (inventory.gpus[1].gpu_instance, inventory.gpus[1].compute_instance) == (2, 0)
    assert inventory.mig_gpus == {gpu.uuid}


async def test_a_gpu_may_be_repartitioned_while_it_is_listed(tmp_path: Path, simulate: Simulate) -> None:
    """No restart: uncut, cut into nothing, into parts, into other parts."""
    machine = simulate("none")
    (whole,) = stub_gpus("NVIDIA A100-SXM4-40GB", 40960)
    library = a_library(tmp_path)
    seen = []
    for gpu in (
        whole,
        partition_gpu(whole),
        partition_gpu(whole, *A100_PARTS),
        partition_gpu(whole, ("7g.40gb", 40192)),
    ):
        machine.set_gpus((gpu,))
        inventory = await library.list_gpus()
        seen.append([(card.index, card.memory_mib) for card in inventory.gpus])
        assert inventory.mig_gpus == ({whole.uuid} if gpu.is_cut else set())
    assert seen == [[(0, 40960)], [], [(100, 19968), (101, 9856), (102, 4864), (103, 4864)], [(100, 40192)]]


async def test_a_lost_card_does_not_hide_the_others(tmp_path: Path, simulate: Simulate) -> None:
    machine = simulate("v100x8")
    lost = machine.gpus[3].uuid
    library = a_library(tmp_path)
    await library.list_gpus()
    machine.lose(lost)
    inventory = await library.list_gpus()
    assert [card.index for card in inventory.gpus] == [0, 1, 2, 4, 5, 6, 7]
    assert [(card.index, card.uuid, str(card.error)) for card in inventory.unreadable] == [(3, lost, "GPU is lost")]
    await library.check_gpu(machine.gpus[4].uuid)
    with pytest.raises(DriverError, match="GPU is lost") as refusal:
        await library.check_gpu(lost)
    assert refusal.value.code == GPU_IS_LOST
    machine.heal()
    assert len((await library.list_gpus()).gpus) == 8


async def test_a_card_vanishes_and_comes_back(tmp_path: Path, simulate: Simulate) -> None:
    machine = simulate("v100x8")
    everything, gone = machine.gpus, machine.gpus[0].uuid
    library = a_library(tmp_path)
    machine.set_gpus(without_gpu(everything, gone))
    assert [card.uuid for card in (await library.list_gpus()).gpus] == [gpu.uuid for gpu in everything[1:]]
    machine.set_gpus(everything)
    assert [card.index for card in (await library.list_gpus()).gpus] == list(range(8))


async def test_a_card_that_comes_back_at_another_place_has_its_new_numbers(tmp_path: Path, simulate: Simulate) -> None:
    """A GPU that was attached again, and an instance that was made again at its old place: each keeps its uuid."""
    machine = simulate("a100-mig")
    (gpu,) = machine.gpus
    library = a_library(tmp_path)
    await library.list_gpus()
    moved = tuple(replace(part, compute_instance=3) for part in gpu.instances)
    machine.set_gpus((replace(gpu, minor=7, pci_bus_id="00000000:0A:00.0", instances=moved),))
    seen = {(card.uuid, card.minor, card.compute_instance) for card in (await library.list_gpus()).gpus}
    assert seen == {(part.uuid, 7, 3) for part in gpu.instances}
    machine.set_gpus((replace(gpu, minor=5, pci_bus_id="00000000:0B:00.0", is_cut=False, instances=()),))
    (whole,) = (await library.list_gpus()).gpus
    assert (whole.uuid, whole.minor, whole.pci_bus_id) == (gpu.uuid, 5, "00000000:0B:00.0")


async def test_confidential_computing_is_noticed(tmp_path: Path, simulate: Simulate) -> None:
    machine, library = simulate("h200x8"), a_library(tmp_path)
    assert not (await library.list_gpus()).has_confidential_computing
    machine.turn_on_confidential_computing()
    assert (await library.list_gpus()).has_confidential_computing


async def test_cards_are_listed_when_confidential_computing_cannot_be_queried(
    tmp_path: Path, simulate: Simulate
) -> None:
    machine = simulate("t4")
    machine.turn_on_confidential_computing()
    machine.fail("nvmlSystemGetConfComputeState", NOT_SUPPORTED)
    inventory = await a_library(tmp_path).list_gpus()
    assert (len(inventory.gpus), inventory.has_confidential_computing) == (1, False)
