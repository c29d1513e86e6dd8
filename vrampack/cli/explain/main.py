"""`vrampack explain pod NAMESPACE/NAME`: where a pod is, or what is missing on every card, and the next step."""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec
import yaml

from extender.settings import ExtenderConfiguration, load_settings
from vrampack.cli.explain.cluster import read_cluster, read_nodes
from vrampack.cli.explain.form import Explanation
from vrampack.cli.explain.gather import explain_alone, explain_bound, explain_waiting
from vrampack.cli.explain.pod import PodWords, Subject
from vrampack.cli.explain.text import ROWS, render
from vrampack.cli.kubeconfig import kubeconfig_of
from vrampack.cli.refusal import refuse
from vrampack.cli.version import VERSION
from vrampack.config.errors import SettingsError
from vrampack.kube.client import Api, load_credentials
from vrampack.kube.errors import CredentialsError, NoAnswerError, RefusedError
from vrampack.kube.objects import UNDECODABLE, PodObject, to_pod

CALL_SECONDS = 30.0
FORBIDDEN = (401, 403)


class UsageError(Exception):
    """What was typed cannot be meant."""


class MissingError(Exception):
    """There is no such pod."""


def main(arguments: Sequence[str]) -> int:
    """Explain one pod; returns the exit code: 0 explained, 1 not there or not readable, 2 misuse."""
    options = parser().parse_args(arguments)
    try:
        namespace, name = _pod_named(options.pod, options.namespace)
        settings = load_settings(options.config)
        explanation = asyncio.run(_explain(options, settings, namespace, name))
    except (UsageError, SettingsError) as error:
        return refuse(str(error), 2)
    except RefusedError as error:
        hint = "; explain needs get and list of pods and list of nodes" if error.status in FORBIDDEN else ""
        return refuse(f"{error}{hint}", 1)
    except NoAnswerError as error:
        return refuse(f"no answer from the API server: {error}", 1)
    except (CredentialsError, MissingError, OSError) as error:
        return refuse(str(error), 1)
    sys.stdout.write(_written(explanation, options.output, is_all=options.all))
    return 0


def parser() -> argparse.ArgumentParser:
    """The flags of this command."""
    made = argparse.ArgumentParser(
        prog="vrampack explain",
        description="Say why a pod is pending: node by node and card by card what is missing, and what to do next.",
        epilog="Exit 0: explained; 1: no such pod, or the cluster cannot be read; 2: misuse.",
    )
    made.add_argument("kind", choices=("pod",), metavar="pod", help="what is explained")
    made.add_argument("pod", metavar="[NAMESPACE/]NAME")
    made.add_argument("-n", "--namespace", metavar="NAME", help="of the pod; `default` without it")
    made.add_argument("-o", "--output", choices=("table", "json", "yaml"), default="table")
    made.add_argument("--all", action="store_true", help=f"every row of the table, not the nearest {ROWS} only")
    made.add_argument("--config", type=Path, metavar="FILE", help="the extender's ExtenderConfiguration, if it has one")
    made.add_argument(
        "--kubeconfig",
        type=Path,
        metavar="FILE",
        help="$KUBECONFIG, ~/.kube/config or the pod's service account without it",
    )
    made.add_argument("--context", metavar="NAME", help="of the kubeconfig; its current one without it")
    return made


async def _explain(
    options: argparse.Namespace, settings: ExtenderConfiguration, namespace: str, name: str
) -> Explanation:
    configuration = await load_credentials(kubeconfig_of(options.kubeconfig), options.context)
    api = Api(configuration, user_agent=f"vrampack-explain/{VERSION}")
    try:
        return await explain_pod(api, settings, namespace, name)
    finally:
        await api.close()


async def explain_pod(api: Api, settings: ExtenderConfiguration, namespace: str, name: str) -> Explanation:
    """Read what is needed and explain. Raises `MissingError`, `RefusedError` or `NoAnswerError`."""
    subject = await _read_pod(api, settings, namespace, name)
    cluster = None
    if subject.needs_cluster:
        cluster = await read_cluster(api, settings)
        subject = await _read_pod(api, settings, namespace, name)  # after the lists: they may have seen it bound
    if subject.state == "bound":
        nodes = await read_nodes(api, settings, [])
        seen = nodes.get(subject.pod.node_name)
        return explain_bound(subject, settings, seen.facts if seen is not None else None)
    if cluster is None or subject.pod.request is None or not subject.needs_cluster:
        return explain_alone(subject, settings)
    return explain_waiting(subject, settings, subject.pod.request, cluster)


async def _read_pod(api: Api, settings: ExtenderConfiguration, namespace: str, name: str) -> Subject:
    body = await api.get_pod_bytes(namespace, name, timeout_seconds=CALL_SECONDS)
    if body is None:
        raise MissingError(f"there is no pod {name} in namespace {namespace}")
    try:
        pod = msgspec.json.decode(body, type=PodObject)
        words = msgspec.json.decode(body, type=PodWords)
    except UNDECODABLE as error:
        raise NoAnswerError(f"get pod {namespace}/{name}: {error}") from error
    return Subject(to_pod(pod, resource=settings.resources.memory), words, pod.metadata.annotations or {})


def _pod_named(text: str, namespace: str | None) -> tuple[str, str]:
    before, slash, name = text.rpartition("/")
    if not name or "/" in before or (slash and not before):
        raise UsageError(f"{text!r} is not a pod; give NAME or NAMESPACE/NAME")
    if before and namespace and before != namespace:
        raise UsageError(f"{text!r} is not in namespace {namespace}; give one of the two")
    return before or namespace or "default", name


def _written(explanation: Explanation, form: str, *, is_all: bool) -> str:
    if form == "table":
        return render(explanation, rows=None if is_all else ROWS)
    if form == "json":
        return msgspec.json.format(msgspec.json.encode(explanation), indent=2).decode() + "\n"
    return yaml.safe_dump(msgspec.to_builtins(explanation), sort_keys=False, allow_unicode=True)
