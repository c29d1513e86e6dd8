"""What operators may change of a policy: each policy that has such numbers says them in a model of its own."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class PolicyWeights(BaseModel):
    """Numbers with a bound and a sentence each. This one has none."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", strict=True, allow_inf_nan=False, use_attribute_docstrings=True
    )
