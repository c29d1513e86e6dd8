"""Alerts about the extender itself: its ledger, its files, and that it is there, once."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path
from urllib.parse import urlsplit

import aiohttp
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from extender.autoscaling.node_marks import ENDED
from extender.state.denied_calls import DENIED_CALLS
from tests.alerts.monitoring_stack import run_monitoring
from tests.alerts.scene import T4, AlertScene, ExtenderUnderWatch, Programs, run_extender, run_scene
from tests.fakes.proxy import FaultProxy
from vrampack.cards.well_known import KEPT_FROM_AUTOSCALERS
from vrampack.cli.demo.objects import build_pod_object
from vrampack.simulator.apiserver import ApiServer

FAULTY_EXTENDER = Path(__file__).with_name("faulty_extender.py")
BIND_PAUSE_SECONDS = 0.5
"""The extender tells turns by its own clock: they take at least 20 s."""


async def test_an_overcommitted_card_raises_an_alert(tmp_path: Path, programs: Programs) -> None:
    """8 of 15 units are held, and a pod with 10 is created on the node, past every scheduler."""
    async with run_scene(tmp_path, programs, {"gpu-0": (T4,)}) as scene:
        scene.api.create(build_pod_object("first", units=8))
        await scene.wait_until_bound("first")
        smuggled = build_pod_object("smuggled", units=10)
        smuggled["spec"]["nodeName"] = "gpu-0"
        scene.api.create(smuggled)
        await scene.monitoring.wait_until_notified("VrampackCardOvercommitted", "firing")
        scene.api.delete("pods", "smuggled")
        await scene.monitoring.wait_until_notified("VrampackCardOvercommitted", "resolved")
        assert scene.monitoring.receiver.names == {"VrampackCardOvercommitted"}


async def test_a_stale_ledger_raises_an_alert(tmp_path: Path, programs: Programs) -> None:
    """The API server, which sends bookmarks twice a second, falls silent and comes back."""
    async with (
        ApiServer(bookmark_seconds=0.5) as api,
        FaultProxy(urlsplit(api.url).port or 0) as proxy,
        run_extender(tmp_path, proxy.url, configuration="deadlines: {stale_seconds: 3}\n") as extender,
        run_monitoring(tmp_path, programs, [extender.target]) as monitoring,
    ):
        proxy.freeze_watches()
        silence = proxy.when("*", "").hang()
        await monitoring.wait_until_notified("VrampackLedgerStale", "firing")
        silence.release()
        proxy.thaw_watches()
        await monitoring.wait_until_notified("VrampackLedgerStale", "resolved")
        assert monitoring.receiver.names == {"VrampackLedgerStale"}


async def test_a_node_that_was_kept_for_too_long_raises_an_alert(tmp_path: Path, programs: Programs) -> None:
    async with run_scene(tmp_path, programs, {"gpu-0": (T4,)}) as scene:
        scene.api.patch("nodes", "gpu-0", {"metadata": {"annotations": {KEPT_FROM_AUTOSCALERS: ENDED}}})
        await scene.monitoring.wait_until_notified("VrampackNodeKeptTooLong", "firing")
        scene.api.patch("nodes", "gpu-0", {"metadata": {"annotations": {KEPT_FROM_AUTOSCALERS: None}}})
        await scene.monitoring.wait_until_notified("VrampackNodeKeptTooLong", "resolved")
        assert scene.monitoring.receiver.names == {"VrampackNodeKeptTooLong"}


async def test_absent_extenders_raise_an_alert(tmp_path: Path, programs: Programs) -> None:
    async with run_scene(tmp_path, programs, {"gpu-0": (T4,)}) as scene:
        scene.extender.process.kill()
        await scene.monitoring.wait_until_notified("VrampackExtenderAway", "firing")
        await scene.extender.start()
        await scene.monitoring.wait_until_notified("VrampackExtenderAway", "resolved")
        assert scene.monitoring.receiver.names == {"VrampackExtenderAway"}


async def test_a_second_extender_raises_an_alert(tmp_path: Path, programs: Programs) -> None:
    """It binds pods beside the one that the scheduler calls, as a second install would, and is stopped then."""
    folder = tmp_path / "second"
    folder.mkdir()
    async with run_scene(tmp_path, programs, {"gpu-0": (T4,)}) as scene, run_extender(folder, scene.api.url) as second:
        binding = asyncio.create_task(bind_with_both(scene, second))
        await scene.monitoring.wait_until_notified("VrampackSecondExtender", "firing")
        binding.cancel()
        await scene.monitoring.wait_until_notified("VrampackSecondExtender", "resolved")
        assert scene.monitoring.receiver.names == {"VrampackSecondExtender"}


async def bind_with_both(scene: AlertScene, second: ExtenderUnderWatch) -> None:
    """One pod with the scheduler and its extender, one by a bind call to the second extender, and again, until cancelled."""
    async with aiohttp.ClientSession() as session:
        for number in count():
            first, other = f"first-{number}", f"other-{number}"
            scene.api.create(build_pod_object(first, units=1))
            await scene.wait_until_bound(first)
            pod = build_pod_object(other, units=1)
            pod["spec"]["schedulerName"] = "another"
            uid = scene.api.create(pod)["metadata"]["uid"]
            call = {"PodName": other, "PodNamespace": "default", "PodUID": uid, "Node": "gpu-0"}
            async with session.post(f"{second.url_prefix}/bind", json=call) as answer:
                assert await answer.json(content_type=None) == {"Error": ""}
            for name in (first, other):
                scene.api.delete("pods", name)
            await asyncio.sleep(BIND_PAUSE_SECONDS)


async def test_a_configuration_that_is_not_in_force_raises_an_alert(tmp_path: Path, programs: Programs) -> None:
    async with (
        ApiServer() as api,
        run_extender(tmp_path, api.url) as extender,
        run_monitoring(tmp_path, programs, [extender.target]) as monitoring,
    ):
        file = tmp_path / "extender.yaml"
        good = file.read_text()
        replace_file(file, f"{good}polcy: spread\n".encode())
        alert = await monitoring.wait_until_notified("VrampackConfigNotInForce", "firing")
        assert alert["labels"]["reason"] == "rejected"
        replace_file(file, good.encode())
        await monitoring.wait_until_notified("VrampackConfigNotInForce", "resolved")
        assert monitoring.receiver.names == {"VrampackConfigNotInForce"}


async def test_an_account_without_rights_raises_an_alert(tmp_path: Path, programs: Programs) -> None:
    """The API server denies each Binding, and says that the account may make none; then it may again."""
    async with run_scene(tmp_path, programs, {"gpu-0": (T4,)}) as scene:
        review = {"kind": "SelfSubjectAccessReview", "metadata": {}, "status": {"allowed": False}}
        denied = [
            scene.proxy.when("POST", "/binding$").answer(403),
            scene.proxy.when("POST", "/selfsubjectaccessreviews$").answer(201, review),
        ]
        for number in range(DENIED_CALLS):
            scene.api.create(build_pod_object(f"denied-{number}", units=1))
        await scene.monitoring.wait_until_notified("VrampackRightsDenied", "firing")
        for rule in denied:
            rule.stop()
        allowed = review | {"status": {"allowed": True}}
        scene.proxy.when("POST", "/selfsubjectaccessreviews$").answer(201, allowed)
        await scene.monitoring.wait_until_notified("VrampackRightsDenied", "resolved")
        await scene.wait_until_bound("denied-0")


async def test_a_fault_of_ours_raises_an_alert(tmp_path: Path, programs: Programs) -> None:
    """One filter is answered with an error; the next finds the node, and the pod is bound."""
    async with run_scene(tmp_path, programs, {"faulty": (T4,)}, program=(FAULTY_EXTENDER,)) as scene:
        scene.api.create(build_pod_object("first", units=8))
        alert = await scene.monitoring.wait_until_notified("VrampackInternalErrors", "firing")
        assert alert["labels"]["during"] == "filter"
        await scene.wait_until_bound("first")
        await scene.monitoring.wait_until_notified("VrampackInternalErrors", "resolved")
        assert scene.monitoring.receiver.names == {"VrampackInternalErrors"}


async def test_answers_of_another_server_raise_an_alert(tmp_path: Path, programs: Programs) -> None:
    """A balancer that finds no server answers Bindings, and the look-ups of their pods, for a while."""
    async with run_scene(tmp_path, programs, {"gpu-0": (T4,)}) as scene:
        answers = [
            scene.proxy.when(method, path).answer(404, b"default backend - 404")
            for method, path in (("POST", "/binding$"), ("GET", "/pods/pod-"))
        ]
        names = [f"pod-{number}" for number in range(4)]
        for name in names:
            scene.api.create(build_pod_object(name, units=1))
        await scene.monitoring.wait_until_notified("VrampackForeignAnswers", "firing")
        for rule in answers:
            rule.stop()
        await scene.wait_until_bound(*names)
        await scene.monitoring.wait_until_notified("VrampackForeignAnswers", "resolved")


async def test_a_certificate_that_expires_soon_raises_an_alert(tmp_path: Path, programs: Programs) -> None:
    """It is renewed on disk, and the extender takes the new one without a restart."""
    write_certificate(tmp_path, days=3)
    files = {"cert_file": "tls.crt", "key_file": "tls.key", "client_ca_file": "tls.crt"}
    tls = "tls:\n" + "".join(f"  {field}: {tmp_path / name}\n" for field, name in files.items())
    async with (
        ApiServer() as api,
        run_extender(tmp_path, api.url, configuration=tls) as extender,
        run_monitoring(tmp_path, programs, [extender.target]) as monitoring,
    ):
        alert = await monitoring.wait_until_notified("VrampackCertificateNearEnd", "firing")
        assert alert["labels"]["listener"] == "verbs"
        write_certificate(tmp_path, days=90)
        await monitoring.wait_until_notified("VrampackCertificateNearEnd", "resolved")
        assert monitoring.receiver.names == {"VrampackCertificateNearEnd"}


def write_certificate(folder: Path, *, days: int) -> None:
    """One that signs itself: it is not checked here."""
    key, now = ec.generate_private_key(ec.SECP256R1()), datetime.now(UTC)
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "vrampack")])
    builder = x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
    certificate = (
        builder.not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(days=days))
        .sign(key, hashes.SHA256())
    )
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    replace_file(folder / "tls.key", private)
    replace_file(folder / "tls.crt", certificate.public_bytes(serialization.Encoding.PEM))


def replace_file(path: Path, content: bytes) -> None:
    fresh = path.with_name(f"{path.name}.new")
    fresh.write_bytes(content)
    fresh.replace(path)
