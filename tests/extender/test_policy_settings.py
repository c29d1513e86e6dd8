"""What an operator may write as tuning."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from extender.policy_settings import PolicyTuning
from vrampack.cards.tuned_policy import TunedPolicy


@pytest.mark.parametrize(
    "text", ['{"default":"best"}', '{"allowed":["best"]}', '{"allowed":"spread"}', '{"wieghts":{}}']
)
def test_tuning_is_strict(text: str) -> None:
    with pytest.raises(ValidationError):
        PolicyTuning.model_validate_json(text)


SAME = {
    "nothing": ({}, TunedPolicy("tessellate")),
    "the policy's own weight": ({"weights": {"opening": 1.18}}, TunedPolicy("tessellate")),
    "another weight": ({"weights": {"opening": 2}}, TunedPolicy("tessellate", (("opening", 2.0),))),
    "a bound": ({"bounds": {"card_use_percent": 85}}, TunedPolicy("tessellate", (), 85)),
    "two weights in the order of names": (
        {"weights": {"pressure": 1, "opening": 0}},
        TunedPolicy("tessellate", (("opening", 0.0), ("pressure", 1.0))),
    ),
    "a policy without weights": ({"default": "spread", "weights": {}}, TunedPolicy("spread")),
}


@pytest.mark.parametrize(("given", "want"), SAME.values(), ids=SAME)
def test_settings_resolve_to_a_default_policy_with_its_tuning(given: dict[str, object], want: TunedPolicy) -> None:
    assert PolicyTuning.model_validate(given).tuned_default == want


def test_a_pod_that_names_the_default_gets_it_with_its_own_weights() -> None:
    given = {"weights": {"opening": 2}, "bounds": {"card_use_percent": 85}, "allowed": ["tessellate"]}
    assert PolicyTuning.model_validate(given).choose_policy("tessellate") == TunedPolicy("tessellate")
