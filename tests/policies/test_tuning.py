"""What an operator may write as tuning."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from policies.tuning import PolicyTuning


@pytest.mark.parametrize(
    "text", ['{"default":"best"}', '{"allowed":["best"]}', '{"allowed":"spread"}', '{"weights":{}}']
)
def test_tuning_is_strict(text: str) -> None:
    with pytest.raises(ValidationError):
        PolicyTuning.model_validate_json(text)
