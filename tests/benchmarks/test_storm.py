"""The stream of CPU pods keeps its pace, or reports that it cannot."""

from __future__ import annotations

import time

import pytest

from benchmarks.storm import LATE_SECONDS, CpuPodStream, _wait_until


class SlowCaller:
    """An API server that takes long for every pod and sends no event about it."""

    def send_request(self, *_: object) -> bytes:
        _wait_until(time.monotonic() + LATE_SECONDS / 2)
        return b""


def test_the_stream_does_not_wait_when_a_pod_is_already_due() -> None:
    before = time.monotonic()
    _wait_until(before - LATE_SECONDS / 2)
    assert time.monotonic() - before < LATE_SECONDS / 2


def test_a_stream_that_falls_behind_is_an_error_and_not_a_smaller_load() -> None:
    stream = CpuPodStream(None, SlowCaller(), None, "any")  # type: ignore[arg-type]  # it ends before it looks at the others
    with pytest.raises(TimeoutError, match=r"the stream of CPU pods is \d\.\d s behind"):
        stream.run_stream(lambda: False)
