"""The numbers of a policy that operators may change: each policy that has some defines its own model."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class PolicyWeights(BaseModel):
    """The base of these models: numbers, each with a bound and a sentence. This base has none."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", strict=True, allow_inf_nan=False, use_attribute_docstrings=True
    )
