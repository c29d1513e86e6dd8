"""On any input the driver keeps running and answers, and nothing is allocated at the end."""

from __future__ import annotations

import random
from ctypes import addressof, c_uint8, memmove

import pytest

from tests.fakes.driver.driver import MIB, FakeDriver
from tests.shim.driver import parameters as nv
from tests.shim.driver.caller import DriverCaller, call_ioctl, ioctl_number

ESCAPES = (
    nv.ALLOC,
    nv.FREE,
    nv.CONTROL,
    nv.DUP,
    nv.VID_HEAP,
    nv.CARD_INFO,
    nv.REGISTER_FD,
    nv.XFER,
    nv.ALLOC_MEMORY,
    0,
)
SIZES = (0, 4, 16, 28, 32, 40, 48, 56, 72, 144, 184, 1028, 16383)
CLASSES = (0, 1, 0x41, 0x80, 0x2080, 0x40, 0x3E, 0x50A0, 0x90F1, 0xC2, 0x82)
ROUNDS = 20_000
SEED = 20260301


def telling_words(chance: random.Random, caller: DriverCaller, address: int) -> list[int]:
    """Numbers that the driver takes seriously, so that the noise gets far."""
    return [
        0, 1, 2, 3, 5, 14, caller.client, caller.device, caller.subdevice, 0xFFFFFFFF, nv.FB_INFO, nv.FB_INFO_V2,
        nv.ID_INFO, nv.GID_INFO, 1028, 16, 32, address & 0xFFFFFFFF, address >> 32, MIB, chance.choice(CLASSES),
        chance.getrandbits(32),
    ]  # fmt: skip


@pytest.mark.parametrize("driver", ["515.43.04", "580.95.05"], indirect=True)
def test_random_calls_do_no_harm(driver: FakeDriver) -> None:
    chance = random.Random(SEED)
    room = (c_uint8 * 32768)()
    with DriverCaller(driver.control) as caller:
        for _ in range(ROUNDS):
            words = telling_words(chance, caller, addressof(room) + 4096)
            noise = b"".join(chance.choice(words).to_bytes(4, "little") for _ in range(chance.choice((8, 16, 64))))
            place = chance.choice((0, 4096))
            memmove(addressof(room) + place, noise, len(noise))
            address = chance.choice((addressof(room), addressof(room), addressof(room), 0, 8, 1 << 47, 2**64 - 16))
            command = ioctl_number(chance.choice(ESCAPES), chance.choice(SIZES)) & chance.choice((2**32 - 1, 2**30 - 1))
            call_ioctl(caller.file, command, address)
        assert driver.state().calls >= ROUNDS // 2  # the others had a pointer the kernel itself refused
    assert [card.used for card in driver.state().cards] == [0, 0]
    assert driver.state().objects == 0
