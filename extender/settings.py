"""The extender's configuration: strict YAML that people type, every field with a bound and a sentence.

`docs/configuration.md` lists the fields; a test compares the two.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from extender.policy_file import PLACEMENT_FIELDS, check_profile_names, load_placement_policy
from extender.policy_settings import PolicySelection, PolicyTuning
from extender.profile_settings import ProfileSettings
from extender.rule_settings import MAX_ENTRIES, RuleSettings
from vrampack.cards import well_known
from vrampack.cards.profiles import PlacementSettings
from vrampack.cards.units import DEFAULT_UNIT_MIB
from vrampack.config.addresses import ListenAddress, OptionalListenAddress, OptionalNamespace, ResourceName, is_loopback
from vrampack.config.errors import SettingsError
from vrampack.config.faults import InvalidFieldError
from vrampack.config.strict import Overrides, StrictModel, load_configuration


def _checked_prefix(text: str) -> str:
    if not text.startswith("/") or text.endswith("/") or "//" in text:
        raise ValueError(f"{text!r} must begin with one slash and end without one, e.g. /gpushare-scheduler")
    return text


DecidingVerb = Literal["prioritize", "filter", "auto"]
"""`prioritize`: the best node gets the highest score, the scheduler's own scores may outweigh it. `filter`: only the best
node passes, the scheduler scores nothing. `auto`: filter, but prioritize for pods that prefer nodes by something else."""


class ResourceSettings(StrictModel):
    """What the cluster calls the memory of cards."""

    memory: ResourceName = well_known.MEMORY_RESOURCE
    """The resource that pods request. Change it only together with the scheduler's `managedResources` and the admission policies."""

    count: ResourceName = well_known.COUNT_RESOURCE
    """The resource by which legacy nodes advertise their number of cards."""


class ListenSettings(StrictModel):
    """The addresses on which the service listens."""

    verbs: ListenAddress = "127.0.0.1:12345"
    """Where the service answers filter, prioritize, preempt, bind, inspect and health. An address other than loopback needs `tls`."""

    health: OptionalListenAddress = "127.0.0.1:12346"
    """Where the service answers health and metrics only. Set 0.0.0.0:12346 if probes and scrapers come from outside; empty: no listener."""

    url_prefix: Annotated[str, AfterValidator(_checked_prefix), Field(examples=["/gpushare-scheduler"])] = (
        "/gpushare-scheduler"
    )
    """The path of `urlPrefix` in the scheduler's configuration."""


class TlsSettings(StrictModel):
    """Mutual TLS for the verbs listener. Give all three files or none."""

    cert_file: Path | None = Field(default=None, strict=False)
    """PEM certificate chain of this server."""

    key_file: Path | None = Field(default=None, strict=False)
    """PEM key of this server."""

    client_ca_file: Path | None = Field(default=None, strict=False)
    """PEM certificate of an authority that signs schedulers' certificates only. With the cluster's own authority, every kubelet could bind."""

    @model_validator(mode="after")
    def _all_or_none(self) -> TlsSettings:
        given = [self.cert_file, self.key_file, self.client_ca_file]
        if any(given) and not all(given):
            raise ValueError("give cert_file, key_file and client_ca_file together")
        return self


class DeadlineSettings(StrictModel):
    """How long the service waits, in seconds."""

    bind_seconds: float = Field(default=3.0, gt=0, le=60)
    """For a bind, including every call it makes. Keep it below the scheduler's httpTimeout (5 s), so that the answer arrives in time."""

    receive_seconds: float = Field(default=10.0, gt=0, le=120)
    """For a request, from its first byte to its last. Raise it only for very slow networks."""

    stale_seconds: float = Field(default=120.0, gt=0, le=3600)
    """How long the API server may be silent before verbs answer with an error instead of guessing. Normally it sends something once a minute."""

    drain_seconds: float = Field(default=5.0, ge=0, le=60)
    """How long a stopping service waits for binds in progress."""

    ready_after_seconds: float = Field(default=5.0, ge=0, le=60)
    """How long after its start a service answers verbs at the earliest, so that it sees Bindings that a killed process sent. 0 where no other process binds."""


class EvictionSettings(StrictModel):
    """What happens to pods that the agents of their nodes refuse."""

    evict_after_seconds: float | None = Field(default=30.0, gt=0, le=3600)
    """How long a node lists a pod in `vrampack.dev/refused` before the pod is evicted. Only pods with a controller are evicted; null: none."""


class DecisionSettings(StrictModel):
    """Which verb chooses the node."""

    default: DecidingVerb = "prioritize"
    """For schedulers that `schedulers` does not list. `filter` and `auto` are faster, but this extender must then be the scheduler's last."""

    schedulers: Mapping[str, DecidingVerb] = {}
    """The verb for each `schedulerName` of pods, if one extender serves several scheduler profiles."""

    def get_deciding_verb(self, scheduler_name: str) -> DecidingVerb:
        """What holds for pods of this scheduler."""
        return self.schedulers.get(scheduler_name, self.default)

    @property
    def can_decide_in_filter(self) -> bool:
        """Whether filter may name the node for any pod."""
        return any(decision != "prioritize" for decision in (self.default, *self.schedulers.values()))


class HoldSettings(StrictModel):
    """Places that count as used from the choice of a node until a bind that may come late. See docs/holds.md."""

    schedulers: tuple[str, ...] = Field(default=(), max_length=MAX_ENTRIES, strict=False)
    """Schedulers of which every pod's place is held. Otherwise those of pods with a volume claim, a resource claim or a scheduling group are."""

    max_seconds: float = Field(default=1500.0, ge=1, le=86_400)
    """The longest time that a place is held. Keep it above the scheduler's own: 600 s for volumes, then what its groups may wait."""


class AutoscalingSettings(StrictModel):
    """Nodes that autoscalers must not remove, and nodes that they must add: they know no cards. See docs/autoscalers.md."""

    protect: Literal["auto", "always", "never"] = "auto"
    """`auto`: once a node shows that Karpenter or the Cluster Autoscaler is there. A change needs a restart."""

    max_hours: float = Field(default=24.0, ge=1, le=8760)
    """How long a node is kept at most: what keeps an autoscaler from removing it also keeps it from replacing an outdated node."""

    placeholders: Literal["never", "karpenter", "cluster-autoscaler"] = "never"
    """For which autoscaler placeholders are made: pods that only a new node can take, where totals fit a pod and no card does.
    It needs docs/recipes/placeholders.yaml, and a restart."""

    max_placeholders_per_hour: int = Field(default=4, ge=1, le=1000)
    """The most of them in an hour: each may become a node."""

    @property
    def follows_rules(self) -> bool:
        """Whether anybody asks which nodes a pod may use."""
        return self.protect != "never" or self.placeholders != "never"


def _expand_decide(given: object) -> object:
    """`decide: filter` is short for `decide: {default: filter}`."""
    if isinstance(given, DecisionSettings | Mapping):
        return given
    if isinstance(given, str):
        return {"default": given}
    raise ValueError(f"{given!r} is neither prioritize, filter or auto nor a mapping with default and schedulers")


class PreemptionSettings(StrictModel):
    """Whether pods are evicted for a pod of a higher priority whose node's totals fit, while no card does. See docs/preemption-by-card.md."""

    by_card: Literal["never", "plan", "act"] = "never"
    """`plan` only says in events which pods would be evicted. Begin with it, and read them before you set `act`."""

    max_evictions_per_hour: int = Field(default=20, ge=1, le=10_000)
    """The most pods that are evicted for others in an hour, in the whole cluster."""

    max_evictions_per_namespace_per_hour: int = Field(default=10, ge=1, le=10_000)
    """The most of them in one namespace."""


class UsageReaderSettings(StrictModel):
    """Where agents publish how much memory of their cards is really used."""

    namespace: OptionalNamespace = ""
    """The namespace of the Leases to read and show, which the agents' `usage_lease.namespace` names too. Empty: none are read."""


class ExtenderConfiguration(StrictModel):
    """The whole file. Every field has a default, so a file with only `apiVersion` and `kind` is valid."""

    apiVersion: Literal["vrampack.dev/v1"]  # noqa: N815 - Kubernetes' own spelling
    kind: Literal["ExtenderConfiguration"]

    unit_mib: int = Field(default=DEFAULT_UNIT_MIB, ge=1, le=1_048_576)
    """MiB per unit of the resource, the same in the whole cluster. Nodes whose agent uses another value get no pods.
    Running pods keep their memory when it changes; requests count in the new unit."""

    reserve_mib: int = Field(default=0, ge=0, le=1_048_576)
    """MiB of every card that limits leave to the driver's own buffers and page tables. Start with 100 for each process that shares a card."""

    resources: ResourceSettings = ResourceSettings()
    listen: ListenSettings = ListenSettings()
    tls: TlsSettings = TlsSettings()
    deadlines: DeadlineSettings = DeadlineSettings()
    refused: EvictionSettings = EvictionSettings()
    policy: PolicyTuning = Field(default=PolicyTuning(), strict=False)

    profiles: tuple[ProfileSettings, ...] = Field(default=(), max_length=MAX_ENTRIES, strict=False)
    """Which policy ranks nodes for which pods: that of the first profile that matches, else `policy.default`."""

    rules: RuleSettings = RuleSettings()
    """What applies in the whole cluster, whatever a policy prefers."""

    decide: Annotated[
        DecisionSettings, BeforeValidator(_expand_decide, json_schema_input_type=DecidingVerb | DecisionSettings)
    ] = DecisionSettings()
    """Which verb chooses the node: `prioritize`, `filter` or `auto`, for all pods or by scheduler."""

    holds: HoldSettings = HoldSettings()
    preemption: PreemptionSettings = PreemptionSettings()
    autoscaling: AutoscalingSettings = AutoscalingSettings()
    usage_leases: UsageReaderSettings = UsageReaderSettings()

    nvidia_fractions: bool = False
    """Also write the annotations that NVIDIA's fractiond reads. Turn it on if fractiond runs on the nodes."""

    def build_placement(self) -> PlacementSettings:
        """What the ledger needs of it."""
        return PlacementSettings(self.rules.build_rules(), tuple(each.build_profile() for each in self.profiles))

    def settle_whole_cards(self, unpaid_use: str) -> ExtenderConfiguration:
        """The settings for a cluster of which `find_unpaid_use` says this: where they leave it open, `as-requested`."""
        if self.rules.whole_cards is not None or not unpaid_use:
            return self
        return self.model_copy(update={"rules": self.rules.model_copy(update={"whole_cards": "as-requested"})})

    def select_policies(self) -> PolicySelection:
        """What decides which policy ranks, and all that may."""
        return PolicySelection(self.policy, tuple(each.policy for each in self.build_placement().profiles))

    @model_validator(mode="after")
    def _check_profile_names(self) -> ExtenderConfiguration:
        check_profile_names(self.profiles)
        return self

    @model_validator(mode="before")
    @classmethod
    def _name_moved_fields(cls, given: object) -> object:
        listen = given.get("listen") if isinstance(given, Mapping) else None
        if isinstance(given, Mapping) and (
            "admission" in given or (isinstance(listen, Mapping) and "admission" in listen)
        ):
            raise InvalidFieldError(
                ("admission",) if "admission" in given else ("listen", "admission"),
                "the webhook is a program of its own, `vrampack admission`; give them to "
                "its AdmissionWebhookConfiguration, as listen.admission, tls and scheduler_name",
            )
        return given

    @model_validator(mode="after")
    def _require_tls(self) -> ExtenderConfiguration:
        if not is_loopback(self.listen.verbs) and self.tls.cert_file is None:
            raise InvalidFieldError(
                ("listen", "verbs"),
                f"{self.listen.verbs} is not loopback and tls is not set; anyone who reaches it could bind "
                "pods. Give tls.cert_file, tls.key_file and tls.client_ca_file, or listen on 127.0.0.1",
            )
        return self


def load_settings(
    path: Path | None, overrides: Overrides | None = None, policy_file: Path | None = None
) -> ExtenderConfiguration:
    """The configuration of `path`, or the defaults without one.

    A policy file has `policy`, `profiles` and `rules`, and the configuration has none of them then.
    Raises `SettingsError` naming the path of every fault.
    """
    settings = load_configuration(ExtenderConfiguration, "ExtenderConfiguration", path, overrides)
    if policy_file is None:
        return settings
    given = [name for name in PLACEMENT_FIELDS if name in settings.model_fields_set]
    if given:
        raise SettingsError(
            f"{path}: {', '.join(given)}: given although there is a policy file, {policy_file}; give it only there"
        )
    placement = load_placement_policy(policy_file)
    return settings.model_copy(update={name: getattr(placement, name) for name in PLACEMENT_FIELDS})
