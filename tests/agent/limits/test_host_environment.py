"""What a container's environment means on a host without Kubernetes: MiB by card, or a refusal with its fix."""

from __future__ import annotations

import pytest

from vrampack.agent.host.environment import VARIABLES, HostRequest, compute_limits_mib, parse_environment
from vrampack.agent.limits.errors import LimitError
from vrampack.cards.node import CardFacts

T4 = CardFacts(0, 14, 15109, "GPU-a", "Tesla T4")
V100 = CardFacts(1, 15, 16130, "GPU-b", "Tesla V100-SXM2-16GB")
SICK = CardFacts(2, 14, 15109, "GPU-c", "Tesla T4", healthy=False)


def an_env(container: str = "6", dev: str = "15", **more: str) -> list[str]:
    """`CONTAINER`, `DEV`, and others of the table by the ends of their names."""
    ends = {"MEM_CONTAINER": container, "MEM_DEV": dev, **more}
    full = {end: name for name in VARIABLES for end in ends if name.endswith(end)}
    return [f"{full[end]}={value}" for end, value in ends.items()]


def compute_limits(env: list[str], *cards: CardFacts) -> dict[str, int] | None:
    wish = parse_environment(env)
    return None if wish is None else compute_limits_mib(wish, cards)


LIMITS = {
    # 15109 * 6 / 15 = 6043.6 and 15109 * 8 / 15 = 8058.1
    "6 of 15 on a T4": (an_env("6"), (T4,), {"GPU-a": 6043}),
    "8 of 15 on a T4": (an_env("8"), (T4,), {"GPU-a": 8058}),
    # 16130 * 4 / 15 = 4301.3
    "4 of 15 on a V100": (an_env("4"), (V100,), {"GPU-b": 4301}),
    "all of it": (an_env("15"), (T4,), {"GPU-a": 15109}),
    "a card by index": (an_env(VISIBLE_DEVICES="1"), (T4, V100), {"GPU-b": 6452}),
    "a card by UUID": (an_env(VISIBLE_DEVICES="GPU-b"), (T4, V100), {"GPU-b": 6452}),
    "two cards, each by the same rule": (an_env(VISIBLE_DEVICES="1, 0"), (T4, V100), {"GPU-b": 6452, "GPU-a": 6043}),
    "one card named twice": (an_env(VISIBLE_DEVICES="0,GPU-a"), (T4, V100), {"GPU-a": 6043}),
    "no card named, and there is one": (an_env(VISIBLE_DEVICES=""), (T4,), {"GPU-a": 6043}),
    "a sick card that is not named": (an_env(VISIBLE_DEVICES="0"), (T4, SICK), {"GPU-a": 6043}),
    "a weight changes no memory": (an_env(SCHD_WEIGHT="16"), (T4,), {"GPU-a": 6043}),
    "not disabled": (an_env(DISABLE="false"), (T4,), {"GPU-a": 6043}),
    "disabled": (an_env(DISABLE="true"), (T4,), None),
    "disabled by 1": (an_env("nonsense", DISABLE="1"), (), None),
    "names of others say nothing": ([*an_env(), "ALIYUN_COM_GPU_MEM_IDX=7"], (T4,), {"GPU-a": 6043}),
}


@pytest.mark.parametrize(("env", "cards", "want"), LIMITS.values(), ids=LIMITS)
def test_limit_is_computed_from_the_environment(
    env: list[str], cards: tuple[CardFacts, ...], want: dict[str, int] | None
) -> None:
    assert compute_limits(env, *cards) == want


REFUSED = {
    "no units": (["ALIYUN_COM_GPU_MEM_DEV=15"], "ALIYUN_COM_GPU_MEM_CONTAINER is not set: give the units of this"),
    "another's variable alone": ([], "ALIYUN_COM_GPU_MEM_CONTAINER is not set"),
    "empty units": (an_env(""), "ALIYUN_COM_GPU_MEM_CONTAINER is not set"),
    "no card units": (["ALIYUN_COM_GPU_MEM_CONTAINER=6"], "ALIYUN_COM_GPU_MEM_DEV is not set: give the units of a wh"),
    "zero": (an_env("0"), "ALIYUN_COM_GPU_MEM_CONTAINER='0': give a whole number of units, 1 to"),
    "a card of zero": (an_env(dev="0"), "ALIYUN_COM_GPU_MEM_DEV='0': give a whole number of units, 1 to"),
    "negative": (an_env("-6"), "ALIYUN_COM_GPU_MEM_CONTAINER='-6': '-6' is negative; give a whole number"),
    "text": (an_env("six"), "ALIYUN_COM_GPU_MEM_CONTAINER='six': 'six' is not a quantity; give a whole number"),
    "a fraction": (an_env("6.5"), "is not a whole number of units"),
    "too many digits": (an_env("9" * 2000), f"'{'9' * 60}'..: "),
    "more than there is": (an_env("16"), "ALIYUN_COM_GPU_MEM_CONTAINER=16 is more than the 15 units of a whole card"),
    "twice": ([*an_env(), "ALIYUN_COM_GPU_MEM_DEV=15"], "ALIYUN_COM_GPU_MEM_DEV is set twice in the environment"),
    "no such index": (an_env(VISIBLE_DEVICES="7"), "VISIBLE_DEVICES: this host has no card '7'; it has 0 (GPU-a), 1 "),
    "no such UUID": (an_env(VISIBLE_DEVICES="GPU-z"), "this host has no card 'GPU-z'; it has 0 (GPU-a), 1 (GPU-b)"),
    "an index of two digits": (an_env(VISIBLE_DEVICES="00"), "no card '00'"),
    "a comma too many": (an_env(VISIBLE_DEVICES="0,"), "give indices or UUIDs with one comma between two"),
    "a sick card": (an_env(VISIBLE_DEVICES="2"), "card '2' is not healthy"),
    "no card named of several": (an_env(), "VISIBLE_DEVICES is not set: this host has 3 cards, 0 (GPU-a), 1 (GPU-b)"),
    "weight 0": (an_env(SCHD_WEIGHT="0"), "ALIYUN_COM_GPU_SCHD_WEIGHT='0': give a whole number from 1 to 16"),
    "weight 17": (an_env(SCHD_WEIGHT="17"), "give a whole number from 1 to 16"),
    "weight in words": (an_env(SCHD_WEIGHT="much"), "give a whole number from 1 to 16"),
    "weight in other digits": (an_env(SCHD_WEIGHT="٣"), "give a whole number from 1 to 16"),
    "perhaps disabled": (an_env(DISABLE="yes"), "CGPU_DISABLE='yes': give true or 1"),
    "less than a MiB": (an_env("1", "1000000", VISIBLE_DEVICES="0"), "is less than 1 MiB of card GPU-a (15109 MiB)"),
}


@pytest.mark.parametrize(("env", "why"), REFUSED.values(), ids=REFUSED)
def test_an_invalid_value_is_refused_with_its_variable(env: list[str], why: str) -> None:
    with pytest.raises(LimitError) as raised:
        compute_limits(env, T4, V100, SICK)
    assert why in str(raised.value)


def test_the_scheduling_weight_is_kept() -> None:
    assert parse_environment(an_env(SCHD_WEIGHT="4", VISIBLE_DEVICES="0")) == HostRequest(6, 15, ("0",), weight=4)


def test_host_without_cards_is_reported() -> None:
    with pytest.raises(LimitError, match="this host has 0 cards, none"):
        compute_limits(an_env())
