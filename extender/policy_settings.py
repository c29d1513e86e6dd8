"""`policy:` of the extender's configuration: which policy decides, and what a pod may choose instead. Nothing here reads a file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    SerializeAsAny,
    ValidationInfo,
    WithJsonSchema,
)
from pydantic_core import PydanticCustomError

from policies.outlook import PolicyWeights
from policies.registry import POLICIES
from vrampack.cards.request import ProfileChoice
from vrampack.cards.tuned_policy import TunedPolicy

WEIGHT_MODELS = {name: policy.TRAITS.weights for name, policy in POLICIES.items() if policy.TRAITS.weights is not None}
"""The weight models of the policies that have weights."""
NO_WEIGHTS = PolicyWeights()


def _check_policy_name(name: str) -> str:
    if name not in POLICIES:
        *others, last = map(repr, POLICIES)
        raise PydanticCustomError("policy_name", "Input should be {names}", {"names": f"{', '.join(others)} or {last}"})
    return name


PolicyName = Annotated[str, AfterValidator(_check_policy_name), Field(json_schema_extra={"enum": [*POLICIES]})]
"""A key of `POLICIES`."""


def _read_weights(given: object, info: ValidationInfo) -> PolicyWeights:
    """Read the weights of the policy that the field before names; those not given keep the policy's values."""
    name: str | None = info.data.get("policy", info.data.get("default"))
    model = None if name is None else WEIGHT_MODELS.get(name)
    if model is not None:
        return model.model_validate(given)
    if name is not None and given not in ({}, NO_WEIGHTS):
        raise ValueError(f"{name} has no weights; these policies have: {', '.join(WEIGHT_MODELS)}")
    return NO_WEIGHTS


def _describe_weights() -> dict[str, Any]:
    """The JSON schema: the weights of any one policy."""
    schemas = [model.model_json_schema() for model in WEIGHT_MODELS.values()]
    return schemas[0] if len(schemas) == 1 else {"anyOf": schemas}


WeightSettings = Annotated[
    SerializeAsAny[PolicyWeights], BeforeValidator(_read_weights), WithJsonSchema(_describe_weights())
]
"""The type of a field after the policy's name, which is in `policy` or `default` of the same model."""
OWN_WEIGHTS: Any = Field(default={}, validate_default=True)
"""Its default."""


class RankingBounds(BaseModel):
    """Limits that a card should stay within when a pod is placed. A bound never refuses a pod."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, use_attribute_docstrings=True)

    card_use_percent: int | None = Field(default=None, ge=1, le=100)
    """Cards that would be fuller than this, in percent, rank after all others. Set it if pods should find free memory on their card."""


NO_BOUNDS = RankingBounds()


class ShadowPolicy(BaseModel):
    """A policy with weights and bounds that is asked about decisions after their answer was sent. It never acts."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    policy: PolicyName
    """The policy to ask."""

    weights: WeightSettings = OWN_WEIGHTS
    """Weights of that policy that replace its defaults."""

    bounds: RankingBounds = NO_BOUNDS
    """Limits that cards should stay within when pods are placed."""

    def build_tuning(self) -> PolicyTuning:
        """The tuning with this policy as the default."""
        return PolicyTuning(default=self.policy, weights=self.weights, bounds=self.bounds)


class PolicyTuning(BaseModel):
    """The default policy and what a pod may choose instead."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    default: PolicyName = "tessellate"
    """The policy for pods that neither choose one nor match a profile. Change it to `spread` if speed matters more than free cards, to
    `node-binpack` if an autoscaler should find empty nodes to remove, to `binpack` if the order of nodes should depend on
    nothing but their cards."""

    weights: WeightSettings = OWN_WEIGHTS
    """Weights of the default policy that replace its defaults."""

    bounds: RankingBounds = NO_BOUNDS
    """Limits that cards should stay within when the default policy ranks."""

    allowed: tuple[PolicyName, ...] = Field(default=(), max_length=len(POLICIES))
    """Policies that a pod may choose by its annotation `vrampack.dev/policy`. Empty: no pod may choose one."""

    shadow: ShadowPolicy | None = None
    """A second policy that is asked about decisions after their answer was sent; metrics count how often it would choose another
    node. Set it before you change `default`, its weights or bounds."""

    @cached_property
    def tuned_default(self) -> TunedPolicy:
        """The default with its weights and bounds."""
        return tune_policy(self.default, self.weights, self.bounds)

    @cached_property
    def _allowed_policies(self) -> Mapping[str, TunedPolicy]:
        """The policies that annotations may name, with their own weights."""
        return {name: TunedPolicy(name) for name in self.allowed}

    def list_policies(self) -> tuple[TunedPolicy, ...]:
        """All policies that may be asked about some pod, without those of profiles."""
        shadow = () if self.shadow is None else (self.shadow.build_tuning().tuned_default,)
        return (self.tuned_default, *self._allowed_policies.values(), *shadow)

    def choose_policy(self, wish: str | None, profile: ProfileChoice | None = None) -> TunedPolicy:
        """The policy that the pod names, if allowed; else that of its profile, else the default."""
        wished = None if wish is None else self._allowed_policies.get(wish)
        if wished is not None:
            return wished
        return self.tuned_default if profile is None else profile.policy


def tune_policy(name: PolicyName, weights: PolicyWeights, bounds: RankingBounds) -> TunedPolicy:
    """The tuned policy; weights that equal the policy's own are left out, so they make no difference."""
    changed = weights.model_dump(exclude_defaults=True)
    return TunedPolicy(name, tuple(sorted(changed.items())), bounds.card_use_percent)


@dataclass(frozen=True, slots=True)
class PolicySelection:
    """A tuning, and the policies of profiles."""

    tuning: PolicyTuning
    profile_policies: tuple[TunedPolicy, ...] = ()

    def choose_policy(self, wish: str | None, profile: ProfileChoice | None = None) -> TunedPolicy:
        """Choose as the tuning does."""
        return self.tuning.choose_policy(wish, profile)

    def list_policies(self) -> tuple[TunedPolicy, ...]:
        """All policies that may be asked about some pod."""
        return (*self.tuning.list_policies(), *self.profile_policies)

    @property
    def reads_hosts(self) -> bool:
        """Whether any of them reads what hosts have left."""
        return any(POLICIES[policy.name].TRAITS.reads_hosts for policy in self.list_policies())
