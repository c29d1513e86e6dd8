"""The auditor's command line: `python -m tests.auditor --api URL ...`. Exit 0: every promise kept; 1: not; 2: misuse."""

import argparse
import signal
import ssl
import sys
from collections.abc import Sequence
from pathlib import Path
from threading import Event

from tests.auditor.api import AuditorApi
from tests.auditor.audit import audit_objects
from tests.auditor.raw import json_lines
from tests.auditor.terms import Terms, Violation
from tests.auditor.watch import LiveWatch


def main(arguments: Sequence[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    terms = Terms(
        memory=options.memory_resource,
        count=options.count_resource,
        placement=options.placement_label,
        domain=options.domain,
        unit_mib=options.unit_mib,
        reserve_mib=options.reserve_mib,
    )
    api = AuditorApi(options.api, _tls(options), options.token_file.read_text().strip() if options.token_file else "")
    if options.watch:
        return _watch(api, terms, seconds=options.seconds, excused=options.excuse)
    transcript = list(json_lines(options.transcript.read_text())) if options.transcript else []
    found = audit_objects(
        api.list("pods")[0],
        api.list("nodes")[0],
        transcript,
        terms=terms,
        complete=options.complete,
        count_unrecorded=not options.ignore_unrecorded,
        excused=options.excuse,
    )
    for violation in found:
        print(violation)
    return 1 if found else 0


def _watch(api: AuditorApi, terms: Terms, *, seconds: float | None, excused: Sequence[str]) -> int:
    """Print each moment a card is over, until the time is up or a signal asks to stop."""
    found: list[Violation] = []
    enough = Event()

    def tell(violation: Violation) -> None:
        if violation.object not in excused:
            found.append(violation)
            print(violation, flush=True)

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: enough.set())
    watch = LiveWatch(api, terms, tell)
    watch.start()
    print("watching", file=sys.stderr, flush=True)
    enough.wait(seconds)
    watch.stop()
    return 1 if found else 0


def _tls(options: argparse.Namespace) -> ssl.SSLContext | None:
    if not options.api.startswith("https:"):
        return None
    context = ssl.create_default_context(cafile=options.ca)
    if options.cert:
        context.load_cert_chain(options.cert, options.key)
    return context


def _parser() -> argparse.ArgumentParser:
    terms = Terms()
    parser = argparse.ArgumentParser(
        prog="python -m tests.auditor", description="Check I1, I2, I4 and I6 from raw API objects."
    )
    parser.add_argument("--api", required=True, metavar="URL", help="the API server, https://host:port")
    parser.add_argument("--ca", type=Path, metavar="FILE", help="who signed its certificate")
    parser.add_argument("--token-file", type=Path, metavar="FILE", help="a bearer token")
    parser.add_argument("--cert", type=Path, metavar="FILE", help="a client certificate, instead of a token")
    parser.add_argument("--key", type=Path, metavar="FILE", help="its key")
    parser.add_argument("--transcript", type=Path, metavar="FILE", help="JSON Lines of verb calls, for I4")
    parser.add_argument("--complete", action="store_true", help="the transcript holds every bind call there was")
    parser.add_argument(
        "--excuse", action="append", default=[], metavar="OBJECT", help='e.g. "pod ml/forged"; repeatable'
    )
    parser.add_argument("--ignore-unrecorded", action="store_true", help="a pod without a record holds nothing")
    parser.add_argument("--watch", action="store_true", help="report every moment in which a card is over (I1)")
    parser.add_argument("--seconds", type=float, help="how long to watch; until SIGTERM when absent")
    parser.add_argument("--memory-resource", default=terms.memory, metavar="NAME")
    parser.add_argument("--count-resource", default=terms.count, metavar="NAME")
    parser.add_argument("--placement-label", default=terms.placement, metavar="NAME")
    parser.add_argument("--domain", default=terms.domain, metavar="NAME", help="of our annotations")
    parser.add_argument("--unit-mib", type=int, default=terms.unit_mib, metavar="MIB")
    parser.add_argument("--reserve-mib", type=int, default=terms.reserve_mib, metavar="MIB")
    return parser


if __name__ == "__main__":
    sys.exit(main())
