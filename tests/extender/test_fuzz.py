"""Any bytes at all get a clear answer from every verb, and leave the ledger as it was.

5,000 bodies: recorded ones, damaged in every way that a seed can think of, and what hypothesis finds. The API server
behind knows no pod, so nothing may change; what a bind that names a pod may do is in the tests of bind.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.fakes.api import FakeKubeApi
from tests.support import recorded_requests
from tests.support.in_memory_extender import AsgiReply, InMemoryExtender

VERBS = ("filter", "prioritize", "bind")
BODIES_PER_VERB = 1600
"""With the 3 x 100 that hypothesis makes, 5,100 bodies."""
FIXED = settings(max_examples=100, deadline=None, derandomize=True)
KEYS = ("Pod", "Nodes", "NodeNames", "metadata", "labels", "annotations", "spec", "containers", "resources", "limits")
SPLICES = (
    b"[" * 3000,
    b'{"a":' * 3000,
    b"9" * 6000,
    b"-9223372036854775809",
    b"1e999",
    b"-0.0",
    b"NaN",
    b"Infinity",
    b"null",
    b"true",
    b'"\\ud800"',
    b'"\\u0000"',
    b'"10G"',
    b"\xff\xfe",
    b"\xc0\x80",
    b"\xed\xa0\x80",
    b"\x00",
    b",",
    b"]}",
    b'"x":1,',
    b'"NodeNames":null,',
    b'"spec":[],',
    b"<!--",
    b"${jndi:x}",
)


def an_extender() -> InMemoryExtender:
    return InMemoryExtender(recorded_requests.recorded_nodes(), recorded_requests.recorded_pods(), api=FakeKubeApi())


def check(verb: str, reply: AsgiReply) -> None:
    """The contract of each verb's answer: never a 5xx, never a word about our internals."""
    text = reply.body.decode()
    answer = json.loads(text)
    assert "Traceback" not in text
    assert "internal error" not in text
    assert len(text) < 20_000
    if verb == "filter":
        assert reply.status == 200
        assert set(answer) == {"Nodes", "NodeNames", "FailedNodes", "FailedAndUnresolvableNodes", "Error"}
        assert not answer["Error"] or not (answer["NodeNames"] or answer["FailedNodes"])
    elif verb == "bind":
        assert reply.status == 200
        assert list(answer) == ["Error"]
        assert answer["Error"]  # there is no pod: nothing can have been bound
    elif reply.status != 200:
        assert reply.status == 400
        assert answer["error"]
    else:
        assert all(isinstance(each["Score"], int) and 0 <= each["Score"] <= 10 for each in answer)


def damaged(body: bytes, rng: Random) -> bytes:
    """The body with one to four pieces of damage."""
    for _ in range(rng.randint(1, 4)):
        body = rng.choice(WOUNDS)(body, rng)
    return body


def flip(body: bytes, rng: Random) -> bytes:
    at = rng.randrange(len(body) + 1)
    return body[:at] + bytes([rng.randrange(256)]) + body[at + 1 :]


def cut(body: bytes, rng: Random) -> bytes:
    return body[: rng.randrange(len(body) + 1)]


def drop(body: bytes, rng: Random) -> bytes:
    at = rng.randrange(len(body) + 1)
    return body[:at] + body[at + rng.randint(1, 40) :]


def splice(body: bytes, rng: Random) -> bytes:
    at = rng.choice([at for at, byte in enumerate(body) if byte in b':,[{"'] or [0])
    return body[: at + 1] + rng.choice(SPLICES) + body[at + 1 :]


def replace_value(body: bytes, rng: Random) -> bytes:
    """A value for another one, after a key: types change, the JSON often stays whole."""
    at = body.find(b":", rng.randrange(len(body) + 1))
    end = min((found for mark in b",}]" if (found := body.find(bytes([mark]), at)) > 0), default=len(body))
    return body if at < 0 else body[: at + 1] + rng.choice(SPLICES) + body[end:]


def respell(body: bytes, rng: Random) -> bytes:
    key = rng.choice(KEYS).encode()
    return body.replace(b'"' + key + b'"', b'"' + rng.choice((key.upper(), key.lower(), key.title())) + b'"')


def double(body: bytes, rng: Random) -> bytes:
    """A piece twice: duplicate keys, or rubbish."""
    at = rng.randrange(len(body) + 1)
    end = at + rng.randint(1, 200)
    return body[:end] + b"," + body[at:]


WOUNDS: tuple[Callable[[bytes, Random], bytes], ...] = (flip, cut, drop, splice, replace_value, respell, double)


@pytest.mark.parametrize("verb", VERBS)
async def test_damaged_recordings_get_a_valid_answer(verb: str) -> None:
    rng = Random(verb)
    extender = an_extender()
    before = extender.state()
    bodies = [recorded_requests.read_recording(name) for name in recorded_requests.recording_names(verb)]
    for _ in range(BODIES_PER_VERB):
        body = damaged(rng.choice(bodies), rng)
        try:
            check(verb, await extender.post_verb(verb, body))
        except Exception as error:
            raise AssertionError(f"{verb}: {body!r}") from error
        assert extender.ledger.generation == before[0], body
    assert extender.state() == before


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(KEYS) | st.text(max_size=8), inner, max_size=6)
    ),
    max_leaves=20,
)
ANYTHING = st.binary(max_size=200) | JSON.map(lambda value: json.dumps(value).encode())


@pytest.mark.parametrize("verb", VERBS)
def test_any_bytes_get_a_valid_answer(verb: str) -> None:
    extender = an_extender()
    before = extender.state()

    with asyncio.Runner() as runner:

        @FIXED
        @given(ANYTHING)
        def post(body: bytes) -> None:
            check(verb, runner.run(extender.post_verb(verb, body)))

        post()
    assert extender.state() == before
