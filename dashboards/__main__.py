"""`python -m dashboards`: write the JSON of all dashboards."""

from __future__ import annotations

import json
from pathlib import Path

from dashboards.definitions import DASHBOARDS
from dashboards.panels import Dashboard

FOLDER = Path(__file__).parents[1] / "charts" / "vrampack" / "files" / "dashboards"


def render_dashboard(dashboard: Dashboard) -> str:
    return json.dumps(dashboard.build_json(), indent=2) + "\n"


def main() -> None:
    for dashboard in DASHBOARDS:
        (FOLDER / f"{dashboard.uid}.json").write_text(render_dashboard(dashboard))


if __name__ == "__main__":
    main()
