"""`vrampack serve --embedded FILE`: the extender with its own API server, in the same process.

Only this part of the command needs the simulator: `serve` imports it when the flag is given.
"""

from __future__ import annotations

import logging
import tempfile
from dataclasses import replace
from pathlib import Path

import uvloop

from extender.app import ExtenderOptions, run_extender
from vrampack.config.errors import SettingsError
from vrampack.simulator.apiserver import ApiServer
from vrampack.simulator.kubeconfig import write_kubeconfig
from vrampack.simulator.object_files import ObjectFileError, read_objects
from vrampack.simulator.resource_kinds import Object

log = logging.getLogger(__name__)


def run_embedded_extender(file: Path, options: ExtenderOptions) -> None:
    """Serve the cluster of the objects in `file` until SIGTERM.

    Raises `SettingsError` when the file cannot be used, and what `run_extender` raises.
    """
    try:
        # There a namespace exists as soon as an object names it, so it has no labels.
        objects = [item for item in read_objects(file) if item["kind"] != "Namespace"]
    except ObjectFileError as error:
        raise SettingsError(str(error)) from error
    uvloop.run(_serve_objects(objects, options))


async def _serve_objects(objects: list[Object], options: ExtenderOptions) -> None:
    with tempfile.TemporaryDirectory(prefix="vrampack-") as folder:
        async with ApiServer() as api:
            for item in objects:
                api.restore(item)
            kubeconfig = write_kubeconfig(Path(folder), api.url)
            log.info("embedded cluster ready api=%s kubeconfig=%s objects=%d", api.url, kubeconfig, len(objects))
            await run_extender(replace(options, kubeconfig=kubeconfig, context=None))
