"""Each value of the chart does what it says, and an invalid one is refused with an error that names it."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable, Iterator
from functools import reduce
from pathlib import Path

import pytest
import yaml

from tests.e2e.chart_values import BESIDE, CASES
from tests.support.chart.helm import RELEASES, locate_helm
from tests.support.chart.rendering import parse_objects, run_helm, value_flags
from tests.support.chart.values import read_values
from tests.support.manifests import Json

WRONG_TOGETHER = {
    "admission.exact": {"admission": {"form": "none", "exact": True}},
    "admission.exact: the webhook": {"admission": {"form": "webhook"}},
    "scheduler.name": {"scheduler": {"name": "default-scheduler"}},
    "agent.config.enforcement": {"agent": {"config": {"enforcement": "kmod"}}},
    "agent.config.injection": {"agent": {"config": {"injection": "exact"}}},
    "admission.webhook.certificate.source": {"admission": {"form": "webhook", "exact": True}},
    "admission.webhook.certificate.secretName": {
        "admission": {"form": "webhook", "exact": True, "webhook": {"certificate": {"source": "secret"}}}
    },
    "admission.webhook.certificate.caBundle": {
        "admission": {
            "form": "webhook",
            "exact": True,
            "webhook": {"certificate": {"source": "secret", "secretName": "mine"}},
        }
    },
}
"""Values that are right each for itself, by what the refusal begins with."""


@pytest.fixture(scope="module", params=RELEASES)
def helm(request: pytest.FixtureRequest) -> Path:
    return locate_helm(request.param)


@pytest.fixture(scope="module")
def rendered_beside(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Json], str]:
    """What these values alone render, once for all cases that are set beside them."""
    made: dict[str, str] = {}

    def render(values: Json) -> str:
        key = str(values)
        if key not in made:
            made[key] = _render(tmp_path_factory.mktemp("beside"), values)
        return made[key]

    return render


def test_every_value_has_a_case() -> None:
    assert list(CASES) == [value.path for value in read_values()]


@pytest.mark.parametrize(("path", "good", "seen"), [(path, *row[:2]) for path, row in CASES.items()], ids=CASES)
def test_value_changes_the_rendered_objects(
    tmp_path: Path, rendered_beside: Callable[[Json], str], path: str, good: Json, seen: str
) -> None:
    beside = BESIDE.get(path, {})
    without, with_it = rendered_beside(beside), _render(tmp_path, beside | {path: good})
    assert without != with_it
    assert seen in with_it
    assert not seen or seen not in without


def test_an_invalid_value_is_refused_by_its_path(tmp_path: Path, helm: Path) -> None:
    """All at once: Helm names every one of them."""
    with pytest.raises(subprocess.CalledProcessError) as refused:
        _render(tmp_path, {path: bad for path, (_, _, bad) in CASES.items()}, helm)
    said = refused.value.stderr
    assert [path for path in CASES if f"/{path.replace('.', '/')}" not in said] == []


def test_an_unknown_value_is_refused_by_its_name(tmp_path: Path) -> None:
    with pytest.raises(subprocess.CalledProcessError) as refused:
        _render(tmp_path, {"agent.kernelmodule": True, "schape": "kubeadm"})
    assert "'kernelmodule'" in refused.value.stderr
    assert "'schape'" in refused.value.stderr


@pytest.mark.parametrize("names", [["second-scheduler"], ["webhook-kubeadm", "kubectl"]], ids=" ".join)
def test_all_images_come_from_the_registry_of_the_values(tmp_path: Path, names: list[str]) -> None:
    """For clusters without the internet: two values name every image, and each pod has the Secret of the registry."""
    values = {
        "image.repository": "mirror.example.com/a",
        "scheduler.image.repository": "mirror.example.com/b",
        "imagePullSecrets": [{"name": "registry"}],
    }
    (tmp_path / "values.yaml").write_text(yaml.safe_dump(_join(values)))
    made = run_helm(locate_helm(), "template", *value_flags(names), "--values", tmp_path / "values.yaml")
    pods = [pod for item in parse_objects(made) for pod in _find_pods(item)]
    assert len(pods) > 1
    for pod in pods:
        assert pod["imagePullSecrets"] == [{"name": "registry"}]
        images = [each["image"] for part in ("containers", "initContainers") for each in pod.get(part, [])]
        assert [image for image in images if not image.startswith("mirror.example.com/")] == []


@pytest.mark.parametrize(("begins", "values"), WRONG_TOGETHER.items(), ids=WRONG_TOGETHER)
def test_contradictory_values_are_refused(tmp_path: Path, begins: str, values: Json) -> None:
    (tmp_path / "values.yaml").write_text(yaml.safe_dump(values))
    with pytest.raises(subprocess.CalledProcessError) as refused:
        run_helm(locate_helm(), "template", "--values", tmp_path / "values.yaml")
    assert f": {begins}" in refused.value.stderr


@pytest.mark.parametrize("name", ["second-scheduler", "before-1.36", "webhook-kubeadm"])
def test_the_notes_wait_for_every_workload(name: str) -> None:
    """Three steps, of which the first waits until what was installed runs. Helm 3 prints no notes without a cluster."""
    flags = [*value_flags([name]), "--set=admission.webhook.certificate.source=cert-manager"]
    made = run_helm(locate_helm("helm-4"), "install", "--dry-run=client", *flags)
    notes = made.partition("NOTES:\n")[2]
    waited = re.findall(r"rollout status (deployment|daemonset)/(\S+)", notes)
    manifests = made.partition("MANIFEST:\n")[2].partition("NOTES:\n")[0]
    workloads = [
        (item["kind"].lower(), item["metadata"]["name"])
        for item in parse_objects(manifests)
        if item["kind"] in {"Deployment", "DaemonSet"}
    ]
    assert sorted(waited) == sorted(workloads)
    assert re.findall(r"^\d", notes, re.MULTILINE) == ["1", "2", "3"]
    assert ("must set schedulerName" in notes) == (name == "before-1.36")


def _find_pods(item: Json) -> Iterator[Json]:
    """What has containers, at any depth: of a CronJob, too."""
    if isinstance(item, dict):
        if "containers" in item:
            yield item
        for each in item.values():
            yield from _find_pods(each)


def _render(folder: Path, values: dict[str, Json], helm: Path | None = None) -> str:
    file = folder / "values.yaml"
    file.write_text(yaml.safe_dump(_join(values)))
    return run_helm(helm or locate_helm(), "template", "--values", file)


def _join(values: dict[str, Json]) -> Json:
    return reduce(_merge, (_nest(path, value) for path, value in values.items()), {})


def _nest(path: str, value: Json) -> Json:
    return reduce(lambda inner, key: {key: inner}, reversed(path.split(".")), value)


def _merge(one: Json, other: Json) -> Json:
    both = {key: _merge(one[key], other[key]) for key in one.keys() & other.keys() if isinstance(other[key], dict)}
    return {**one, **other, **both}
