"""A changed file takes effect where it can, is reported where it cannot, and does no harm when it is bad."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from extender.app import Extender, ExtenderOptions
from extender.config_reloader import ConfigReloader, ConfigurationEvents, ConfigurationSource
from extender.events import EventReason
from extender.metrics import CONFIG_REASONS, ExtenderMetrics
from extender.settings import ExtenderConfiguration, load_settings
from tests.fakes.api import FakeKubeApi
from tests.support.builders import ledger_pod, node_facts, pod_request
from tests.support.own_events import OwnEvents
from vrampack.cards.node import Share
from vrampack.cards.records import Record
from vrampack.config.errors import SettingsError

HEAD = "apiVersion: vrampack.dev/v1\nkind: ExtenderConfiguration\n"
SPREAD = HEAD + "policy: {default: spread}\n"
OVERRIDES = {"listen.verbs": "127.0.0.1:7"}


class ReloadHarness:
    """A reloader over a real file, and what it handed on."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "extender.yaml"
        self.write(HEAD)
        self.metrics = ExtenderMetrics("test")
        self.applied: list[ExtenderConfiguration] = []
        self.refusals = 0
        """How many more settings cannot be applied, for a reason that passes."""
        self.recorder = OwnEvents(self.metrics)
        self.reloader = self.start(self.path)

    def start(self, path: Path) -> ConfigReloader:
        self.settings = load_settings(path, OVERRIDES)
        events = ConfigurationEvents(self.recorder, ledger_pod("extender-0"))
        return ConfigReloader(
            ConfigurationSource(path, OVERRIDES),
            settings=self.settings,
            metrics=self.metrics,
            listener=self,
            events=events,
        )

    async def on_settings_changed(self, settings: ExtenderConfiguration) -> None:
        if self.refusals:
            self.refusals -= 1
            raise SettingsError("namespaces were not listed")
        if settings.policy.default == "node-binpack":
            raise SettingsError("cannot be put into force")
        self.applied.append(settings)

    def write(self, text: str) -> None:
        """A new file under the name, as editors write it: another inode, whatever the clock's grain."""
        fresh = self.path.with_suffix(".new")
        fresh.write_text(text)
        fresh.rename(self.path)

    @property
    def policies(self) -> list[str]:
        return [settings.policy.default for settings in self.applied]

    @property
    def generation(self) -> float:
        return float(self.metrics.config_generation._value.get())

    @property
    def failures(self) -> float:
        return float(self.metrics.config_reload_failures._value.get())

    @property
    def outstanding(self) -> list[str]:
        """Why not all that the file says is in force."""
        return [reason for reason in CONFIG_REASONS if self.metrics.config_not_in_force.labels(reason)._value.get()]


@pytest.fixture
def harness(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> Iterator[ReloadHarness]:
    with caplog.at_level("WARNING", logger="extender.config_reloader"):
        yield ReloadHarness(tmp_path)


async def test_a_changed_policy_takes_effect(harness: ReloadHarness) -> None:
    harness.write(SPREAD)
    await harness.reloader.reload_if_changed()
    assert (harness.policies, harness.generation) == (["spread"], 2)
    harness.write(HEAD)
    await harness.reloader.reload_if_changed()
    assert (harness.policies, harness.generation) == (["spread", "tessellate"], 3)


async def test_a_changed_weight_takes_effect(harness: ReloadHarness) -> None:
    """As does another policy whose weights are not given."""
    for text in (
        "policy: {weights: {opening: 2}}",
        "policy: {bounds: {card_use_percent: 85}}",
        "policy: {default: spread}",
    ):
        harness.write(HEAD + text)
        await harness.reloader.reload_if_changed()
    assert (len(harness.applied), harness.generation) == (3, 4)
    assert [text.partition("force: ")[2] for _, _, text, _ in harness.recorder.asked] == [
        "policy.weights.opening changed",
        "policy.weights.opening, policy.bounds.card_use_percent changed",
        "policy.default, policy.bounds.card_use_percent changed",
    ]


async def test_a_rewritten_file_with_the_same_content_changes_nothing(
    harness: ReloadHarness, caplog: pytest.LogCaptureFixture
) -> None:
    for text in (HEAD, HEAD, HEAD + "# a comment\n", HEAD + "policy: {weights: {opening: 1.18}}\n"):
        harness.write(text)
        await harness.reloader.reload_if_changed()
    assert (harness.applied, harness.generation, harness.failures) == ([], 1, 0)
    assert caplog.messages == []


async def test_a_file_written_in_place_is_seen(harness: ReloadHarness) -> None:
    """Same inode, same size, and a time that differs by one nanosecond."""
    await harness.reloader.reload_if_changed()
    before = harness.path.stat()
    harness.path.write_text(SPREAD)
    await harness.reloader.reload_if_changed()
    assert harness.path.stat().st_ino == before.st_ino
    assert harness.policies == ["spread"]
    at = harness.path.stat().st_mtime_ns + 1
    harness.path.write_text(SPREAD.replace("spread", "sprEAD"))
    os.utime(harness.path, ns=(at, at))
    await harness.reloader.reload_if_changed()
    assert harness.failures == 1


async def test_a_change_before_the_first_check_is_noticed(harness: ReloadHarness) -> None:
    """Between reading the file at the start and the first look, too."""
    started = harness.start(harness.path)
    harness.write(SPREAD)
    await started.reload_if_changed()
    assert harness.policies == ["spread"]


async def test_flags_still_override_the_file_after_a_reload(
    harness: ReloadHarness, caplog: pytest.LogCaptureFixture
) -> None:
    harness.write(SPREAD + "listen: {verbs: '127.0.0.1:1'}\n")
    await harness.reloader.reload_if_changed()
    assert harness.applied[0].listen.verbs == "127.0.0.1:7"
    assert caplog.messages == []


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        (
            "policy: {default: best}",
            "extender.yaml:3: policy.default: found the text 'best'; allowed: one of binpack, ",
        ),
        ("policy: [", "not YAML"),
        ("unit_mib: 2020-13-45", "month must be in 1..12"),
        ("unit_mib: 0\nreserve_mib: -1", "unit_mib: found 0; allowed: a whole number from 1 to 1048576; "),
    ],
)
async def test_a_bad_file_keeps_the_old_generation_and_is_logged_once(
    harness: ReloadHarness, caplog: pytest.LogCaptureFixture, text: str, fault: str
) -> None:
    harness.write(SPREAD)
    await harness.reloader.reload_if_changed()
    harness.write(HEAD + text)
    for _ in range(3):
        await harness.reloader.reload_if_changed()
    (record,) = caplog.records
    assert record.levelname == "ERROR"
    assert "configuration not reloaded generation=2" in record.getMessage()
    assert fault in record.getMessage()
    assert "\n" not in record.getMessage()
    assert (harness.policies, harness.generation, harness.failures) == (["spread"], 2, 1)


async def test_settings_that_cannot_be_applied_change_nothing(harness: ReloadHarness) -> None:
    for text in (SPREAD, SPREAD.replace("spread", "node-binpack"), HEAD):
        harness.write(text)
        await harness.reloader.reload_if_changed()
    assert (harness.policies, harness.generation, harness.failures) == (["spread", "tessellate"], 3, 1)


async def test_settings_that_could_not_be_applied_are_tried_again(
    harness: ReloadHarness, caplog: pytest.LogCaptureFixture
) -> None:
    """After 1, 2, 4, 8, 16 and again 16 checks, until they are in force or the file is another one. One report is enough."""
    harness.write(SPREAD)
    harness.refusals = 6
    tried = []
    for check in range(1 + 1 + 2 + 4 + 8 + 16 + 16):
        assert harness.outstanding == ["rejected"] * (check > 0)
        before = harness.refusals
        await harness.reloader.reload_if_changed()
        tried += [check] if harness.refusals < before or harness.applied else []
    assert tried == [0, 1, 3, 7, 15, 31, 47]
    assert (harness.policies, harness.generation, harness.outstanding) == (["spread"], 2, [])
    assert (harness.failures, len(caplog.messages)) == (1, 1)
    harness.refusals = 1
    for text in (HEAD, SPREAD):
        harness.write(text)
        await harness.reloader.reload_if_changed()
    assert (harness.policies, harness.outstanding) == (["spread"], [])


async def test_an_event_reports_the_outcome_for_each_file(harness: ReloadHarness) -> None:
    for text in (SPREAD, HEAD + "polcy: 1", SPREAD + "unit_mib: 256\n", HEAD + "nvidia_fractions: true\n"):
        harness.write(text)
        await harness.reloader.reload_if_changed()
    fault = f"generation 2 of the configuration stays in force: {harness.path}:3: polcy: no such field; did you mean policy?"
    in_force = "of the configuration is in force: "
    applied, rejected = EventReason.CONFIGURATION_APPLIED, EventReason.CONFIGURATION_REJECTED
    assert [(name, reason, is_warning) for name, reason, _, is_warning in harness.recorder.asked] == [
        ("extender-0", applied, False),
        ("extender-0", rejected, True),
        ("extender-0", applied, True),
        ("extender-0", applied, True),
    ]
    assert [text[: len(fault)] for _, _, text, _ in harness.recorder.asked] == [
        f"generation 2 {in_force}policy.default changed",
        fault,
        f"generation 2 {in_force}unit_mib changed and needs a restart",
        f"generation 3 {in_force}policy.default changed; nvidia_fractions changed and needs a restart",
    ]


async def test_a_bad_file_that_is_fixed_takes_effect(harness: ReloadHarness) -> None:
    for text in (HEAD + "polcy: 1", HEAD + "policy: 1", SPREAD):
        harness.write(text)
        await harness.reloader.reload_if_changed()
    assert (harness.policies, harness.generation, harness.failures) == (["spread"], 2, 2)


async def test_a_configmap_swap_through_a_parent_symlink_is_noticed(tmp_path: Path, harness: ReloadHarness) -> None:
    """As kubelet does it: `extender.yaml` -> `..data/extender.yaml`, and `..data` is put to another folder."""
    volume = tmp_path / "volume"
    volume.mkdir()
    for name, text in (("..2025_1", HEAD), ("..2025_2", SPREAD)):
        (volume / name).mkdir()
        (volume / name / "extender.yaml").write_text(text)
        os.utime(volume / name / "extender.yaml", ns=(1, 1))
    (volume / "..data").symlink_to("..2025_1")
    (volume / "extender.yaml").symlink_to("..data/extender.yaml")
    reloader = harness.start(volume / "extender.yaml")
    await reloader.reload_if_changed()
    (volume / "..data_tmp").symlink_to("..2025_2")
    (volume / "..data_tmp").rename(volume / "..data")
    await reloader.reload_if_changed()
    assert (harness.policies, harness.generation) == (["spread"], 2)


async def test_a_field_that_needs_a_restart_is_named_and_the_rest_applies(
    harness: ReloadHarness, caplog: pytest.LogCaptureFixture
) -> None:
    harness.write(SPREAD + "unit_mib: 256\ndeadlines: {bind_seconds: 2.0}\n")
    for _ in range(2):
        await harness.reloader.reload_if_changed()
    assert [record.levelname for record in caplog.records] == ["WARNING", "WARNING"]
    named = [message.partition("field=")[2].partition(" ")[0] for message in caplog.messages]
    assert named == ["unit_mib", "deadlines.bind_seconds"]
    assert all("needs a restart" in message for message in caplog.messages)
    assert harness.policies == ["spread"]
    assert (harness.applied[0].unit_mib, harness.applied[0].deadlines.bind_seconds) == (1024, 3.0)


async def test_a_change_of_only_a_restart_field_starts_no_new_generation(harness: ReloadHarness) -> None:
    harness.write(HEAD + "nvidia_fractions: true\n")
    await harness.reloader.reload_if_changed()
    assert (harness.applied, harness.generation, harness.failures) == ([], 1, 0)
    assert harness.outstanding == ["restart"]


async def test_a_field_that_is_reset_no_longer_needs_a_restart(
    harness: ReloadHarness, caplog: pytest.LogCaptureFixture
) -> None:
    for text in (HEAD + "unit_mib: 256\n", HEAD):
        harness.write(text)
        await harness.reloader.reload_if_changed()
    assert len(caplog.messages) == 1
    assert harness.outstanding == []


async def test_a_missing_file_is_logged_once_and_its_return_is_noticed(
    harness: ReloadHarness, caplog: pytest.LogCaptureFixture
) -> None:
    harness.write(SPREAD)
    await harness.reloader.reload_if_changed()
    harness.path.unlink()
    for _ in range(3):
        await harness.reloader.reload_if_changed()
    assert [f"{harness.path}: No such file or directory" in message for message in caplog.messages] == [True]
    assert (harness.generation, harness.failures) == (2, 1)
    harness.write(HEAD)
    await harness.reloader.reload_if_changed()
    assert (harness.policies, harness.generation, harness.failures) == (["spread", "tessellate"], 3, 1)


async def test_a_file_missing_at_the_first_check_is_logged(harness: ReloadHarness) -> None:
    harness.path.unlink()
    await harness.reloader.reload_if_changed()
    assert harness.failures == 1


async def test_a_pipe_is_read_at_the_start_and_never_again(harness: ReloadHarness) -> None:
    """`--config <(..)`: opening it again could wait for ever. That `run` ends is the test."""
    harness.path.unlink()
    os.mkfifo(harness.path)
    async with asyncio.timeout(1):
        await harness.reloader.run()


@pytest.mark.parametrize("text", [SPREAD, HEAD + "policy: {bounds: {card_use_percent: 75}}\n"])
async def test_the_service_ranks_by_the_new_policy_and_signals_new_room(harness: ReloadHarness, text: str) -> None:
    """5 of 15 units are free on one node and all on the other: the default takes the tighter, spread the emptier one.

    With 2 more units the tighter one would be 80 % in use, past the bound.
    """
    options = ExtenderOptions(harness.settings, "test", source=ConfigurationSource(harness.path, OVERRIDES))
    service = Extender(options, FakeKubeApi(), harness.metrics)
    for facts in (node_facts("empty", 15), node_facts("tight", 15)):
        service._ledger.update_node(facts)
    record = Record("vrampack", (Share(10, "GPU-0", 0),))
    service._ledger.update_pod(ledger_pod("held", units=10, node="tight", record=record))
    assert service._config_reloader is not None

    best = [service._components.engine.rank_nodes(["empty", "tight"], pod_request(2), "a", 1)]
    room = service._ledger.capacity_generation
    harness.write(text)
    await service._config_reloader.reload_if_changed()
    best.append(service._components.engine.rank_nodes(["empty", "tight"], pod_request(2), "a", 1))
    assert best == [["tight"], ["empty"]]
    assert {node.name for _, node in service._ledger.nodes.list_nodes_gained_since(room)} == {"empty", "tight"}
