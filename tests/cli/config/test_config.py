"""`vrampack config`: which program reads which file, how many faults are shown, the schemas, and that every program reports the same."""

from __future__ import annotations

from pathlib import Path

import pytest

from extender.config_reloader import ConfigReloader, ConfigurationEvents, ConfigurationSource
from extender.events import ExtenderEventRecorder
from extender.metrics import ExtenderMetrics
from extender.settings import ExtenderConfiguration, load_settings
from tests.fakes.api import FakeKubeApi
from vrampack.cli.config.file_kinds import FILE_KINDS
from vrampack.cli.config.main import main
from vrampack.cli.main import main as run_vrampack

HEAD = "apiVersion: vrampack.dev/v1\nkind: ExtenderConfiguration\n"
SCHEMAS = Path(__file__).parents[3] / "docs" / "schemas"


@pytest.mark.parametrize("name", FILE_KINDS)
def test_shipped_schema_matches_the_model(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """`vrampack config schema agent > docs/schemas/agent-configuration.v1.json` writes it again."""
    kind = FILE_KINDS[name]
    assert main(["schema", kind.reader]) == 0
    assert capsys.readouterr().out == (SCHEMAS / kind.schema_file).read_text()


KINDS = {
    "kind: KubeSchedulerConfiguration": "1: kind: found KubeSchedulerConfiguration: this is kube-scheduler's file; allowed: one of Ext",
    "apiVersion: v1\nkind: ConfigMap": "2: kind: found ConfigMap: this is a ConfigMap; the file is the text under its data; allowed: one of",
    "kind: Deployment": "1: kind: found the text 'Deployment'; allowed: one of ExtenderConfiguration, AgentConfiguration, ",
    "# nothing\n\nunit_mib: 1": "3: kind: missing; allowed: one of ExtenderConfiguration, AgentConfiguration, AdmissionWebhookConfig",
    "kind: AgentConfig": "1: kind: found the text 'AgentConfig'; allowed: AgentConfiguration",
    "kidn: AgentConfiguration": "1: kidn: no such field; did you mean kind? Allowed here: apiVersion, kind, mode, ",
}  # fmt: skip


@pytest.mark.parametrize(("text", "fault"), KINDS.items())
def test_a_file_of_an_unknown_kind_is_refused_with_the_known_kinds(
    text: str, fault: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "file.yaml"
    file.write_text(text)
    assert main(["check", str(file)]) == 1
    assert f"{file}:{fault}" in capsys.readouterr().out


def test_one_bad_file_among_good_ones_exits_1(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    good, bad = tmp_path / "good.yaml", tmp_path / "bad.yaml"
    good.write_text(HEAD)
    bad.write_text(f"{HEAD}unit_mib: 0\n")
    assert run_vrampack(["config", "check", str(bad), str(good), str(tmp_path / "none.yaml")]) == 1
    assert capsys.readouterr().out.splitlines() == [
        f"{bad}:3: unit_mib: found 0; allowed: a whole number from 1 to 1048576",
        f"{good}: good, ExtenderConfiguration",
        f"{tmp_path}/none.yaml: No such file or directory",
    ]


def test_fifty_faults_are_shown_and_the_others_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "long.yaml"
    file.write_text(HEAD + "".join(f"key{number}: 1\n" for number in range(53)))
    assert main(["check", str(file)]) == 1
    said = capsys.readouterr().out.splitlines()
    assert (len(said), said[-1]) == (51, f"{file}: and 3 more faults")
    assert said[0].startswith(f"{file}:3: key0: no such field")


ENTRIES = """\
rules:
  reserve:
    - model: A
      cards: 0
      user: {namespaces: [a]}
    - model: A
      cards: 2
      users:
        namespaces: [a, B]
        labels: {"a b": x, c: 1}
  models:
    - {alow: [A]}
"""


def test_the_entries_of_a_list_are_named_by_number(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "rules.yaml"
    file.write_text(HEAD + ENTRIES)
    assert main(["check", str(file)]) == 1
    assert [line.removeprefix(f"{file}:") for line in capsys.readouterr().out.splitlines()] == [
        "6: rules.reserve.0.cards: found 0; allowed: a whole number from 1 to 100000",
        "7: rules.reserve.0.user: no such field; did you mean users? Allowed here: model, cards, users, min_units",
        "11: rules.reserve.1.users.namespaces.1: found the text 'B'; allowed: a text such as team-*",
        "12: rules.reserve.1.users.labels.a b: found the key 'a b'; allowed: a text of another form",
        "12: rules.reserve.1.users.labels.c: found 1; allowed: a text",
        "14: rules.models.0.allow: missing; allowed: a list of at most 64, each entry a text such as NVIDIA A100-SXM4-80GB",
        "14: rules.models.0.alow: no such field; did you mean allow? Allowed here: users, allow",
    ]


def test_a_slip_of_the_key_comes_before_a_key_of_another_place(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "profiles.yaml"
    file.write_text(f"{HEAD}profiles: [{{name: a, policy: spread, users: {{namespace: [b]}}}}]\n")
    assert main(["check", str(file)]) == 1
    assert "users.namespace: no such field; did you mean namespaces? Else it belongs under" in capsys.readouterr().out


@pytest.mark.parametrize(
    "text", ["unit_mib: 0\nlisten: {verb: 1}\n", "tls: [\n", "kind: Agent\nkind: AgentConfiguration\n"]
)
async def test_start_and_reload_report_the_same_faults_as_check(
    text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "extender.yaml"
    file.write_text(HEAD)
    reloader = ConfigReloader(
        ConfigurationSource(file),
        settings=load_settings(file),
        metrics=(metrics := ExtenderMetrics("test")),
        listener=NoListener(),
        events=ConfigurationEvents(ExtenderEventRecorder(FakeKubeApi(), metrics, clock=float, now=float), None),
    )
    file.write_text(HEAD + text)
    assert run_vrampack(["serve", "--config", str(file)]) == 2
    at_start = [line.removeprefix("vrampack: ") for line in capsys.readouterr().err.splitlines()]
    await reloader.reload_if_changed()
    assert caplog.messages[-1].endswith(f"error={'; '.join(at_start)}")
    if "Agent" not in text:  # check would accept that as the file of another program
        main(["check", str(file)])
        assert capsys.readouterr().out.splitlines() == at_start


class NoListener:
    """Nothing in these files takes effect."""

    async def on_settings_changed(self, settings: ExtenderConfiguration) -> None:
        raise AssertionError(settings)
