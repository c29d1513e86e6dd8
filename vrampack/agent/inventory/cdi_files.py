"""Files that container runtimes and NVIDIA's toolkit leave on a node: CDI files and hook configurations, JSON or YAML."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TypeAlias

import yaml

CDI_FOLDERS = (Path("/etc/cdi"), Path("/var/run/cdi"))
OUR_PREFIX = "vrampack-"
_OUR_FILE = re.compile(r"\.?vrampack-(?:[0-9a-f]{32}|probe)\.(?:json|tmp)")
"""The file names of our own specs (`cdi/spec_folder.py`). They are not read here: the watch that waits until the runtime has
read one would mistake this process for it."""
MAX_FILE_BYTES = 4 << 20
"""A CDI file of 16 cards has about 100 KB; a larger file is not read."""

Document: TypeAlias = dict[str, object]

log = logging.getLogger(__name__)


def read_cdi_documents(folders: Iterable[Path] = CDI_FOLDERS) -> Iterator[Document]:
    """All CDI files in these folders that are not ours, sorted by name."""
    for folder in folders:
        for path in sorted(path for path in folder.glob("*") if path.suffix in {".json", ".yaml", ".yml"}):
            if not is_spec_of_ours(path.name):
                yield from read_documents(path)


def is_spec_of_ours(file_name: str) -> bool:
    """Whether the file name is that of a spec of ours, even half written."""
    return file_name.startswith((OUR_PREFIX, ".")) and _OUR_FILE.fullmatch(file_name) is not None


def read_documents(path: Path) -> Iterator[Document]:
    """The file's document, if it has one. A broken file of another program is logged and skipped, as runtimes do."""
    try:
        text = _read_text(path)
        document = json.loads(text) if path.suffix == ".json" else yaml.safe_load(text)
    except FileNotFoundError:
        return
    except (OSError, ValueError, RecursionError, yaml.YAMLError) as error:
        log.warning("file skipped path=%s reason=%s", path, str(error).partition("\n")[0])
        return
    if isinstance(document, dict):
        yield document


def _read_text(path: Path) -> str:
    with path.open("rb") as file:
        start = file.read(MAX_FILE_BYTES + 1)
    if len(start) > MAX_FILE_BYTES:
        raise ValueError(f"larger than {MAX_FILE_BYTES} bytes")
    return start.decode()


def list_mappings(value: object) -> Iterator[Document]:
    """The mappings in a list; none if the value is something else."""
    return (item for item in (value if isinstance(value, list) else ()) if isinstance(item, dict))
