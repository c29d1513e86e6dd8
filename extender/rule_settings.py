"""`rules:` of the extender's configuration: what holds in the whole cluster, whatever a policy prefers.

`docs/configuration.md` says what each rule does.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import Field

from vrampack.cards.rules import CardReserve, ModelPermit, PlacementRules, PodSelector, Sharing
from vrampack.cards.units import MAX_UNITS
from vrampack.config.strict import StrictModel

LABEL_SHARING = "same-label:"
LABEL_KEY = "([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?"
"""As Kubernetes writes them: a name, or a domain and a name."""
LabelKey = Annotated[
    str,
    Field(
        pattern=f"^{LABEL_KEY}$",
        max_length=317,
        examples=["team"],
    ),
]
NamespacePattern = Annotated[str, Field(pattern=r"^[-a-z0-9*]+$", max_length=63, examples=["team-*"])]
ModelName = Annotated[str, Field(min_length=1, max_length=128, examples=["NVIDIA A100-SXM4-80GB"])]
WholeCards = Literal["paid", "as-requested"]
MAX_ENTRIES = 64
"""Of a list of rules: each is asked of every new pod."""


class PodSelectorSettings(StrictModel):
    """Which pods. Every field that is given must match; without any, all pods match."""

    namespaces: tuple[NamespacePattern, ...] = Field(default=(), max_length=MAX_ENTRIES, strict=False)
    """Names of namespaces; `*` stands for any part of a name. Empty: all."""

    labels: Mapping[LabelKey, str] = Field(default={}, max_length=MAX_ENTRIES)
    """Labels that the pod must have, all of them. Use only labels that admission guards to separate tenants: pod owners write labels."""

    namespace_labels: Mapping[LabelKey, str] = Field(default={}, max_length=MAX_ENTRIES)
    """Labels that the pod's namespace must have, all of them. Namespaces are watched only if some selector gives this."""

    def build_selector(self) -> PodSelector:
        return PodSelector(
            self.namespaces, tuple(sorted(self.labels.items())), tuple(sorted(self.namespace_labels.items()))
        )


class CardReserveSettings(StrictModel):
    """Cards of one model that are kept for some pods."""

    model: ModelName
    """The model, as `nvidia-smi -L` names it."""

    cards: int = Field(ge=1, le=100_000)
    """How many cards: the first usable ones by node name and index."""

    users: PodSelectorSettings = PodSelectorSettings()
    """Which pods may use them."""

    min_units: int = Field(default=0, ge=0, le=MAX_UNITS)
    """Only requests for at least this many units per card, or for whole cards, may use them. Set it to keep cards for large pods."""


class ModelPermitSettings(StrictModel):
    """The only models that some pods may use."""

    users: PodSelectorSettings = PodSelectorSettings()
    """Which pods."""

    allow: tuple[ModelName, ...] = Field(max_length=MAX_ENTRIES, strict=False)
    """The models, as `nvidia-smi -L` names them. An empty list: no card at all."""


class RuleSettings(StrictModel):
    """What must hold on every card. A changed rule does not affect running pods."""

    max_pods_per_card: int | None = Field(default=None, ge=1, le=1000)
    """How many pods one card takes, however small they are. Lower it if the driver or MPS allows only a certain number of clients."""

    share_with: Annotated[
        str,
        Field(
            pattern=rf"^(anybody|same-namespace|{LABEL_SHARING}{LABEL_KEY})$",
            json_schema_extra={
                "anyOf": [
                    {"enum": ["anybody", "same-namespace"]},
                    {"type": "string", "pattern": f"^{LABEL_SHARING}", "examples": ["same-label:team"]},
                ]
            },
        ),
    ] = "anybody"
    """Whose pods may share a card. Use `same-namespace` if tenants are namespaces, `same-label:team` if the label `team` names the tenant."""

    reserve: tuple[CardReserveSettings, ...] = Field(default=(), max_length=MAX_ENTRIES, strict=False)
    """Cards kept for some pods; all others never get them."""

    models: tuple[ModelPermitSettings, ...] = Field(default=(), max_length=MAX_ENTRIES, strict=False)
    """The first entry whose `users` match a pod lists the models that it may use. A pod that matches no entry may use any."""

    whole_cards: WholeCards | None = None
    """`paid`: a pod gets whole cards only if it asks for all of their units, so that quotas count what it holds. `as-requested`:
    any empty card that is large enough. null: `paid`, unless pods that run at the extender's start speak against it."""

    def build_rules(self) -> PlacementRules:
        """The rules as the ledger and the engine need them."""
        is_by_label = self.share_with.startswith(LABEL_SHARING)
        sharing: Sharing = "same-label" if is_by_label else "anybody"
        if self.share_with == "same-namespace":
            sharing = "same-namespace"
        return PlacementRules(
            max_pods_per_card=self.max_pods_per_card,
            share_with=sharing,
            label_key=self.share_with.removeprefix(LABEL_SHARING) if is_by_label else "",
            reserves=tuple(
                CardReserve(each.model, each.cards, each.users.build_selector(), each.min_units)
                for each in self.reserve
            ),
            permits=tuple(ModelPermit(each.users.build_selector(), frozenset(each.allow)) for each in self.models),
            whole_cards_are_paid=self.whole_cards != "as-requested",
        )
