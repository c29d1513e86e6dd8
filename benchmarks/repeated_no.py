"""The answer that a scheduler with a thousand waiting pods hears most: no, again.

Every event of a cluster makes a scheduler try refused pods anew, so "no" has to be the cheapest answer there is, or the
pods of everybody else wait behind ours. Measured is filter on 1,000 full nodes, the same pod each time, the names in
another order each time, back to back, with nothing changed in between: from the moment the event loop hands over the
last byte of the request until the reply is written to the socket, inside the real service (`stopwatch.py`); and beside
it the round trip as the client sees it. It does not tell what a storm does to pods that could be bound: that is the
group `storm`.
"""

from __future__ import annotations

import json
import random
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from benchmarks.caller import Caller, Reply
from benchmarks.figures import median, percentile
from benchmarks.objects import Cluster, asking_pod, encode
from benchmarks.options import Options
from benchmarks.rows import Row
from benchmarks.subject import PREFIX, Pages, serving

NODES = 1000
PODS = 4000
CALLS = 2000
WARM_UP = 200
COMMAND = "python -m benchmarks no"


def rows(options: Options) -> Iterator[Row]:
    """The time in the service, and what the client sees."""
    cluster = Cluster(options.sized(NODES), options.sized(PODS), pending=1, full_share=1, seed=options.seed)
    warm_up = options.sized(WARM_UP)
    with tempfile.TemporaryDirectory(prefix="vrampack-bench-") as folder:
        file = Path(folder) / "times.json"
        with serving(Pages.of(cluster), command=(sys.executable, "-m", "benchmarks.stopwatch", str(file))) as subject:
            cpu = subject.cpu_seconds()
            replies = _ask(subject.port, cluster, warm_up + options.sized(CALLS), options.seed)
            cpu = (subject.cpu_seconds() - cpu) / len(replies)
        verbs = json.loads(file.read_text())
    assert len(verbs) == len(replies), f"{len(verbs)} answers were timed, {len(replies)} were received"
    replies, verbs = replies[warm_up:], verbs[warm_up:]
    written = [verb["written"] / 1000 for verb in verbs]
    writing = median([verb["writing"] / 1000 for verb in verbs])
    what = f"a repeated no, {NODES:,} names"
    note = f"{writing:.0f} us until the write begins; {cpu * 1e6:.0f} us CPU of the extender"
    yield Row("no-1000-p50", f"{what}, p50", COMMAND, median(written), "us", 100, 150, note=note)
    yield Row("no-1000-p99", f"{what}, p99", COMMAND, percentile(written, 0.99), "us", None, None)
    trip = median([reply.seconds for reply in replies]) * 1e6
    yield Row("no-1000-client-p50", f"{what}, at the client, p50", COMMAND, trip, "us", None, None)
    note = (
        f"{max(reply.segments for reply in replies)} segments and {max(reply.reads for reply in replies)} reads at the "
        f"client, {sum(verb['unsent_bytes'] > 0 for verb in verbs)} answers not sent at once; of {len(replies)}"
    )
    writes = max(verb["writes"] for verb in verbs)
    yield Row("no-1000-writes", f"{what}, writes for an answer", COMMAND, writes, "writes", None, None, note=note)


def _ask(port: int, cluster: Cluster, calls: int, seed: int) -> list[Reply]:
    chance = random.Random(seed)
    pod = encode(asking_pod("pending-0", 8))
    names = [encode(name) for name in cluster.names()]
    bodies = []
    for _ in range(calls):
        chance.shuffle(names)
        bodies.append(b'{"Pod":%b,"Nodes":null,"NodeNames":[%b]}' % (pod, b",".join(names)))
    with Caller(port) as caller:
        replies = [caller.post(f"{PREFIX}/filter", body) for body in bodies]
    for reply in replies:
        said = json.loads(reply.body)
        assert not said["Error"], said["Error"]
        assert not said["NodeNames"], "a full cluster passed a node"
    return replies
