"""The life of a spec: present when the runtime is asked, removed when its container exists; other programs' are untouched."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.fakes.cdi_runtime import CdiRuntime, start_cdi_runtime
from vrampack.agent.cdi import spec_publisher
from vrampack.agent.cdi.device_names import CARD_KIND, make_device_name, parse_qualified_name, qualify_name
from vrampack.agent.cdi.errors import CdiError
from vrampack.agent.cdi.read_watch import ReadWatch
from vrampack.agent.cdi.runtime_probe import parse_runtime
from vrampack.agent.cdi.spec_document import CdiDevice, CdiEdits, CdiSpec
from vrampack.agent.cdi.spec_folder import SpecFolder
from vrampack.agent.cdi.spec_publisher import LIFETIME_SECONDS, MIN_SECONDS, SpecOfContainer, SpecPublisher
from vrampack.agent.metrics import AgentMetrics


class PublisherHarness:
    """A publisher, its folder, and what the API server and the clock show it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.watch = ReadWatch()
        self.metrics = AgentMetrics("test", node="n")
        self.now = 0.0
        self.container_ids: dict[tuple[str, str], str] = {}
        self.missing: set[str] = set()
        self.publisher = SpecPublisher(
            SpecFolder(folder, self.watch),
            self.watch,
            self.metrics,
            get_container_id=lambda uid, container: self.container_ids.get((uid, container), ""),
            is_missing=self.missing.__contains__,
            clock=lambda: self.now,
        )

    def count_reads(self, result: str) -> float:
        return self.metrics.registry.get_sample_value("vrampack_agent_cdi_specs_total", {"result": result}) or 0

    def list_specs(self) -> list[str]:
        return sorted(path.name for path in self.folder.iterdir())


def make_spec(container: str = "main", *, name: str = "", env: str = "A=1") -> SpecOfContainer:
    chosen = name or make_device_name()
    spec = CdiSpec("0.5.0", CARD_KIND, (CdiDevice(chosen, CdiEdits((env,))),))
    return SpecOfContainer(chosen, spec, "uid", container, frozenset({"GPU-0"}))


@pytest.fixture
async def harness(tmp_path: Path) -> AsyncIterator[PublisherHarness]:
    (tmp_path / "cdi").mkdir()
    found = PublisherHarness(tmp_path / "cdi")
    yield found
    found.watch.close()


@pytest.fixture
async def runtime(harness: PublisherHarness) -> AsyncIterator[CdiRuntime]:
    found = await start_cdi_runtime(harness.folder)
    yield found
    await found.close()


async def test_a_published_spec_can_be_resolved(harness: PublisherHarness, runtime: CdiRuntime) -> None:
    both = [make_spec("init", env="A=1"), make_spec("main", env="A=2")]
    await harness.publisher.publish_specs(both)
    assert [await runtime.resolve(qualify_name(each.name)) for each in both] == [{"env": ["A=1"]}, {"env": ["A=2"]}]
    assert harness.count_reads("read") == 2
    modes = [path.stat().st_mode & 0o777 for path in harness.folder.iterdir()]
    assert modes == [0o600, 0o600]


async def test_twenty_concurrent_specs_beside_foreign_ones_are_all_read(
    harness: PublisherHarness, runtime: CdiRuntime
) -> None:
    for at in range(40):
        (harness.folder / f"claim-{at}.json").write_text('{"cdiVersion":"0.5.0","kind":"example.com/x","devices":[]}')
    specs = [make_spec() for _ in range(20)]
    await asyncio.gather(*(harness.publisher.publish_specs([each]) for each in specs))
    assert harness.count_reads("read") == 20
    assert all([await runtime.resolve(qualify_name(each.name)) for each in specs])


async def test_a_rewritten_spec_is_read_again(harness: PublisherHarness, runtime: CdiRuntime) -> None:
    first = make_spec(env="A=1")
    await harness.publisher.publish_specs([first])
    await harness.publisher.publish_specs([make_spec(name=first.name, env="A=2")])
    assert await runtime.resolve(qualify_name(first.name)) == {"env": ["A=2"]}


async def test_spec_is_deleted_once_its_container_exists(harness: PublisherHarness, runtime: CdiRuntime) -> None:
    harness.container_ids["uid", "main"] = "containerd://before"
    spec = make_spec()
    await harness.publisher.publish_specs([spec])
    harness.now = LIFETIME_SECONDS - 1
    harness.publisher.remove_used_specs()
    assert await runtime.resolve(qualify_name(spec.name)) is not None
    harness.container_ids["uid", "main"] = "containerd://made"
    harness.publisher.remove_used_specs()
    assert harness.list_specs() == []
    assert await runtime.resolve(qualify_name(spec.name)) is None


async def test_spec_of_a_card_that_is_gone_is_deleted(harness: PublisherHarness, runtime: CdiRuntime) -> None:
    """Kubelet may start the container without asking after its own restart, and the card's numbers are another's."""
    spec = make_spec()
    await harness.publisher.publish_specs([spec])
    harness.publisher.remove_used_specs()
    assert await runtime.resolve(qualify_name(spec.name)) is not None
    harness.missing.add("GPU-0")
    harness.publisher.remove_used_specs()
    assert await runtime.resolve(qualify_name(spec.name)) is None


async def test_specs_published_together_are_deleted_together(harness: PublisherHarness, runtime: CdiRuntime) -> None:
    """An init container that has ended shares its devices with the main one, which starts: it does not run again."""
    harness.container_ids["uid", "init"] = "containerd://ended"
    both = [make_spec("init"), make_spec("main")]
    await harness.publisher.publish_specs(both)
    other = make_spec("other")
    await harness.publisher.publish_specs([other])
    harness.container_ids["uid", "main"] = "containerd://made"
    harness.now = MIN_SECONDS
    harness.publisher.remove_used_specs()
    assert harness.list_specs() == [f"vrampack-{other.name}.json"]
    assert await runtime.resolve(qualify_name(both[0].name)) is None


async def test_spec_is_deleted_with_its_pod(harness: PublisherHarness, runtime: CdiRuntime) -> None:
    spec = make_spec()
    await harness.publisher.publish_specs([spec])
    harness.publisher.forget_pod("other")
    assert await runtime.resolve(qualify_name(spec.name)) is not None
    harness.publisher.forget_pod("uid")
    assert harness.list_specs() == []


async def test_an_update_about_the_previous_container_deletes_no_spec(
    harness: PublisherHarness, runtime: CdiRuntime
) -> None:
    spec = make_spec()
    await harness.publisher.publish_specs([spec])
    harness.container_ids["uid", "main"] = "containerd://before"
    harness.now = MIN_SECONDS / 2
    harness.publisher.remove_used_specs()
    assert await runtime.resolve(qualify_name(spec.name)) is not None


async def test_an_unused_spec_is_deleted_after_a_while(harness: PublisherHarness, runtime: CdiRuntime) -> None:
    spec = make_spec()
    await harness.publisher.publish_specs([spec])
    harness.now = LIFETIME_SECONDS
    harness.publisher.remove_used_specs()
    assert await runtime.resolve(qualify_name(spec.name)) is None


@pytest.mark.parametrize("version", ["containerd://1.7.27", "containerd://2.1.3"])
async def test_publishing_fails_when_the_runtime_does_not_read_the_spec(
    harness: PublisherHarness, version: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With CDI off a runtime silently creates the container without its card. One that has read others may be slow."""
    monkeypatch.setattr(spec_publisher, "READ_SECONDS", 0.05)
    harness.publisher.runtime = parse_runtime(version)
    with pytest.raises(CdiError, match=r"containerd .* has read no CDI spec"):
        await harness.publisher.publish_specs([make_spec()])
    harness.publisher.has_been_read = True
    with pytest.raises(CdiError, match=r"has not read the CDI spec within 0\.05 s"):
        await harness.publisher.publish_specs([make_spec()])
    assert harness.list_specs() == []
    assert (harness.count_reads("refused"), harness.count_reads("timeout")) == (1, 1)


async def test_no_spec_is_written_for_a_pod_that_has_ended(harness: PublisherHarness) -> None:
    """Its start was in progress when the pod was deleted."""
    harness.publisher.forget_pod("uid")
    with pytest.raises(CdiError, match="its pod has ended"):
        await harness.publisher.publish_specs([make_spec()])
    assert harness.list_specs() == []


async def test_the_cleanup_deletes_only_our_specs(harness: PublisherHarness) -> None:
    ours = [f"vrampack-{make_device_name()}.json", f".vrampack-{make_device_name()}.tmp", "vrampack-probe.json"]
    theirs = ["nvidia.yaml", "vrampack-hook.json", ".claim.tmp"]
    for name in (*ours, *theirs):
        (harness.folder / name).write_text("{}")
    harness.publisher.remove_all_specs()
    assert harness.list_specs() == sorted(theirs)


async def test_an_unwritable_folder_is_named(tmp_path: Path) -> None:
    harness = PublisherHarness(tmp_path / "missing")
    with pytest.raises(CdiError, match="missing: No such file or directory"):
        await harness.publisher.publish_specs([make_spec()])
    harness.publisher.remove_all_specs()


async def test_read_watch_reports_reads_and_not_writes(tmp_path: Path) -> None:
    watch, path = ReadWatch(), tmp_path / "f"
    path.write_text("a")
    read = watch.watch_file(path)
    path.write_text("b")
    path = path.rename(tmp_path / "g")
    assert not await read.wait_for_read(0.01)
    await asyncio.to_thread(path.read_text)
    assert await read.wait_for_read(5)
    forgotten = watch.watch_file(path)
    watch.forget_file(forgotten)
    await asyncio.to_thread(path.read_text)
    assert not await forgotten.wait_for_read(0.01)
    watch.close()


NAMES = {
    "ours": ("vrampack.dev/card=" + "0a" * 16, "0a" * 16),
    "a part of one": ("vrampack.dev/card=0a", None),
    "a path": ("vrampack.dev/card=../../" + "0a" * 13, None),
    "another kind": ("nvidia.com/gpu=" + "0a" * 16, None),
    "no device": ("", None),
}


@pytest.mark.parametrize(("text", "name"), NAMES.values(), ids=NAMES)
def test_only_our_qualified_names_are_parsed(text: str, name: str | None) -> None:
    assert parse_qualified_name(text) == name


def test_device_names_are_unique() -> None:
    assert len({make_device_name() for _ in range(1000)}) == 1000
