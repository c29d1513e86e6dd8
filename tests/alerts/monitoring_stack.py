"""A real Prometheus and Alertmanager on loopback, with the shipped rules and monitors, in fast time.

async with run_monitoring(folder, programs, [ScrapeTarget("vrampack-agent", ..)]) as monitoring:
    await monitoring.wait_until_notified("VrampackCardSick", "firing")
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from signal import SIGHUP
from typing import Any, Literal, TypeAlias

import aiohttp

from tests.alerts.notifications import NotificationReceiver, run_receiver
from tests.alerts.panel_records import Labels, Points
from tests.alerts.scrape_config import ScrapeTarget, build_scrape_configs, load_monitors
from tests.support.processes import LOOPBACK, ManagedProcess, choose_free_ports
from tests.support.rule_files import load_groups, write_rules

Json: TypeAlias = Any
"""What Prometheus answers, or its configuration."""

SPEED = 120
"""An hour in 30 s: what is scraped every 30 s in a cluster is scraped four times a second here."""
INTERVAL_SECONDS = 30 / SPEED
RULES = "rules.json"
WITHIN_SECONDS = 90
"""The longest `for` is 8 s here; the rest is for a machine that is busy with something else."""
POLL_SECONDS = 0.05


@dataclass(frozen=True, slots=True)
class MonitoringObjects:
    """What Prometheus is told: the shipped files, or what somebody installed."""

    monitors: Sequence[Json] = field(default_factory=load_monitors)
    rule_groups: list[Json] = field(default_factory=load_groups)
    speed: int = SPEED

    @property
    def interval(self) -> str:
        """Thirty seconds, which pass so much faster."""
        return f"{30_000 // self.speed}ms"


class MonitoringStack:
    """Both programs, and who is notified."""

    def __init__(self, prometheus_url: str, receiver: NotificationReceiver, session: aiohttp.ClientSession) -> None:
        self.receiver = receiver
        self._began_at = time.time()
        self._url = prometheus_url
        self._session = session

    def measure_seconds(self) -> float:
        """Since the scenario began."""
        return time.time() - self._began_at

    async def query_vector(self, expression: str) -> Mapping[Labels, float]:
        """The samples of an instant query by their labels."""
        found = await self._ask("query", {"query": expression})
        return {_sort_labels(each): float(each["value"][1]) for each in found}

    async def query_range(self, expression: str, *, step_seconds: float) -> Mapping[Labels, Points]:
        """What each series had since the scenario began, up to now: seconds since then, and a value."""
        now = time.time()
        start = now - (now - self._began_at) // step_seconds * step_seconds
        times = {"start": start, "end": now, "step": step_seconds}
        found = await self._ask("query_range", {"query": expression, **{key: f"{at:.3f}" for key, at in times.items()}})
        return {
            _sort_labels(each): [(at - self._began_at, float(value)) for at, value in each["values"]] for each in found
        }

    async def list_alerts(self) -> list[Json]:
        """Alerts that Prometheus holds as firing or pending."""
        async with self._session.get(f"{self._url}/api/v1/alerts") as answer:
            alerts: list[Json] = (await answer.json())["data"]["alerts"]
        return alerts

    async def wait_until_notified(self, name: str, status: Literal["firing", "resolved"]) -> Json:
        """The alert as it arrived."""
        try:
            async with asyncio.timeout(WITHIN_SECONDS):
                return await self.receiver.wait_for_alert(name, status)
        except TimeoutError as error:
            held = json.dumps(await self.list_alerts(), indent=1)
            raise TimeoutError(f"{name} {status}: not within {WITHIN_SECONDS} s; Prometheus has {held}") from error

    async def wait_until_sampled(self, expression: str) -> None:
        """Wait until the expression has a value."""

        async def has_value() -> bool:
            return bool(await self.query_vector(expression))

        await self.wait_until(has_value, expression)

    async def wait_until_rules_are_loaded(self) -> None:
        async def are_loaded() -> bool:
            async with self._session.get(f"{self._url}/api/v1/rules") as answer:
                return bool((await answer.json())["data"]["groups"])

        await self.wait_until(are_loaded, "rules")

    async def wait_until(self, is_reached: Callable[[], Awaitable[bool]], what: str | Callable[[], str]) -> None:
        try:
            async with asyncio.timeout(WITHIN_SECONDS):
                while not await is_reached():  # noqa: ASYNC110 - another process, without an event to wait for
                    await asyncio.sleep(POLL_SECONDS)
        except TimeoutError as error:
            held = json.dumps(await self.list_alerts(), indent=1)
            missing = what() if callable(what) else what
            raise TimeoutError(f"{missing}: not within {WITHIN_SECONDS} s; Prometheus has {held}") from error

    async def _ask(self, what: str, parameters: Mapping[str, str]) -> list[Json]:
        async with self._session.get(f"{self._url}/api/v1/{what}", params=parameters) as answer:
            found = await answer.json()
        if found["status"] != "success":
            raise ValueError(f"{parameters}: {found['error']}")
        result: list[Json] = found["data"]["result"]
        return result


def _sort_labels(series: Json) -> Labels:
    return tuple(sorted((key, value) for key, value in series["metric"].items() if key != "__name__"))


@asynccontextmanager
async def run_monitoring(
    folder: Path,
    programs: Mapping[str, Path],
    targets: Sequence[ScrapeTarget],
    told: MonitoringObjects | None = None,
) -> AsyncIterator[MonitoringStack]:
    """Both, ready, and scraping these targets; killed when the block ends."""
    told = told or MonitoringObjects()
    prometheus_port, alertmanager_port = choose_free_ports(2)
    async with run_receiver() as receiver, aiohttp.ClientSession() as session:
        alertmanager = _build_alertmanager(folder, programs["alertmanager"], alertmanager_port, receiver.url, told)
        ports = (prometheus_port, alertmanager_port)
        prometheus = _build_prometheus(folder, programs["prometheus"], ports, targets, told)
        url = f"http://{LOOPBACK}:{prometheus_port}"
        try:
            for process, port in ((alertmanager, alertmanager_port), (prometheus, prometheus_port)):
                process.start()
                await asyncio.to_thread(process.wait_ready, f"http://{LOOPBACK}:{port}/-/ready", timeout_seconds=60)
            monitoring = MonitoringStack(url, receiver, session)
            # Its first scrape comes 5 s after its start: ten minutes of these rules, in which no target would be there.
            await monitoring.wait_until_sampled(f"count(up) == {len(targets)}")
            write_rules(folder / RULES, told.rule_groups, speed=told.speed)
            prometheus.signal(SIGHUP)
            await monitoring.wait_until_rules_are_loaded()
            yield monitoring
        finally:
            prometheus.kill()
            alertmanager.kill()


def _build_prometheus(
    folder: Path, program: Path, ports: tuple[int, int], targets: Sequence[ScrapeTarget], told: MonitoringObjects
) -> ManagedProcess:
    port, alertmanager_port = ports
    interval = told.interval
    configuration = {
        "global": {"scrape_interval": interval, "scrape_timeout": interval, "evaluation_interval": interval},
        "rule_files": [str(folder / f"{RULES}*")],
        "alerting": {"alertmanagers": [{"static_configs": [{"targets": [f"{LOOPBACK}:{alertmanager_port}"]}]}]},
        "scrape_configs": build_scrape_configs(targets, told.monitors, interval=interval),
    }
    file = folder / "prometheus.json"
    file.write_text(json.dumps(configuration))
    flags = {
        "config.file": file,
        "storage.tsdb.path": folder / "prometheus",
        "web.listen-address": f"{LOOPBACK}:{port}",
        "rules.alert.resend-delay": "1s",
    }
    return ManagedProcess("prometheus", _command(program, flags), directory=folder)


def _build_alertmanager(
    folder: Path, program: Path, port: int, receiver_url: str, told: MonitoringObjects
) -> ManagedProcess:
    route = {
        "receiver": "test",
        "group_by": ["..."],
        "group_wait": "0s",
        "group_interval": told.interval,
        "repeat_interval": "1h",
    }
    receiver = {"name": "test", "webhook_configs": [{"url": receiver_url, "send_resolved": True}]}
    file = folder / "alertmanager.json"
    file.write_text(json.dumps({"route": route, "receivers": [receiver]}))
    flags = {
        "config.file": file,
        "storage.path": folder / "alertmanager",
        "web.listen-address": f"{LOOPBACK}:{port}",
        "cluster.listen-address": "",  # one of them, which looks for no others
    }
    return ManagedProcess("alertmanager", _command(program, flags), directory=folder)


def _command(program: Path, flags: Mapping[str, object]) -> list[str | Path]:
    return [program, *(f"--{name}={value}" for name, value in flags.items())]
