"""A kubectl that serves `get --raw` from files: `fake_kubectl.py FOLDER get --raw PATH`, with flags anywhere between.

`get pods -o json` lists those of the namespace `ml`, which is the context's.

FOLDER has nodes.json and pods.json, lists of objects; every call's flags are added to calls.jsonl. A file `fault` makes it
fail: `expired` every list after its first page, `expired-once` the first such list only, and anything else is written to stderr
instead of an answer. It knows kubectl's paging and the field selectors that we send, and refuses what it does not know.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

EXPIRED = "Error from server (Expired): The provided continue parameter is too old to display a consistent list result."
FIELDS = {"spec.nodeName": ("spec", "nodeName"), "status.phase": ("status", "phase")}


def main(folder: Path, arguments: list[str]) -> int:
    with (folder / "calls.jsonl").open("a") as calls:
        calls.write(json.dumps(arguments) + "\n")
    if arguments[-4:] == ["get", "pods", "-o", "json"]:
        own = [each for each in json.loads((folder / "pods.json").read_text()) if each["metadata"]["namespace"] == "ml"]
        sys.stdout.write(json.dumps({"kind": "List", "apiVersion": "v1", "items": own}))
        return 0
    if arguments[-3:-1] != ["get", "--raw"]:
        sys.exit(f"error: unknown command {arguments}")
    url = urlsplit(arguments[-1])
    query = {key: values[0] for key, values in parse_qs(url.query, strict_parsing=True).items()}
    fault = folder / "fault"
    text = fault.read_text() if fault.exists() else ""
    if text and not text.startswith("expired"):
        sys.exit(text)
    if text and "continue" in query:
        if text == "expired-once":
            fault.unlink()
        sys.exit(EXPIRED)
    sys.stdout.write(json.dumps(page(folder, url.path.removeprefix("/api/v1/"), query)))
    return 0


def page(folder: Path, resource: str, query: dict[str, str]) -> dict[str, Any]:
    limit, start = int(query.pop("limit")), int(query.pop("continue", "0"))
    limit = int((folder / "limit").read_text()) if (folder / "limit").exists() else limit
    terms = [term.split("!=") for term in query.pop("fieldSelector", "").split(",") if term]
    if query:
        sys.exit(f"error: unknown parameters {query}")
    items = [
        item
        for item in json.loads((folder / f"{resource}.json").read_text())
        if all((item.get(FIELDS[key][0], {}).get(FIELDS[key][1]) or "") != value for key, value in terms)
    ]
    end = start + limit
    metadata = {"resourceVersion": "77"} | ({"continue": str(end)} if end < len(items) else {})
    return {"kind": "List", "apiVersion": "v1", "metadata": metadata, "items": items[start:end]}


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2:]))
