"""A plugin of pytest: the files that take longest come first, so that no worker begins one when the others have nothing left."""

from __future__ import annotations

import pytest

LONGEST = (
    "test_admission_weakened.py",
    "test_chart_release.py",
    "test_bind_rows.py",
    "test_admission_webhook.py",
    "test_admission_environment.py",
    "test_chart_gitops.py",
    "test_apiserver_contract.py",
    "test_ui_in_browser.py",
    "test_chart.py",
    "test_scheduler_recordings.py",
    "test_install.py",
    "test_scheduler_benchmarks.py",
    "test_manifests.py",
    "test_late_answers.py",
    "test_placements.py",
    "test_soft_reservations.py",
    "test_late_failures.py",
    "test_kills.py",
)
"""A minute or more each. The others stay in the order that pytest-randomly drew."""


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=_find_place)


def _find_place(item: pytest.Item) -> int:
    return LONGEST.index(item.path.name) if item.path.name in LONGEST else len(LONGEST)
