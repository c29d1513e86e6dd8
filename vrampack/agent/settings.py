"""The agent's configuration: strict YAML that people type, every field with a bound and a sentence.

`docs/configuration.md` lists the fields; a test compares the two.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, model_validator

from vrampack.cards import well_known
from vrampack.cards.units import DEFAULT_UNIT_MIB, MAX_UNITS
from vrampack.config.addresses import OptionalListenAddress, OptionalNamespace, OptionalSocketPath, ResourceName
from vrampack.config.strict import Overrides, StrictModel, load_configuration
from vrampack.kube.node_api import ReadAs

DriverCapability = Literal["compute", "compat32", "display", "graphics", "ngx", "utility", "video"]
CardUnits = Annotated[int, Field(ge=1, le=MAX_UNITS)]


class AgentResources(StrictModel):
    """What the cluster calls the memory of cards."""

    memory: ResourceName = well_known.MEMORY_RESOURCE
    """The resource that the agent registers with kubelet: the same as the extender's `resources.memory`."""


class AgentListen(StrictModel):
    """Where the agent listens for probes, scrapers and people."""

    health: OptionalListenAddress = "0.0.0.0:12347"
    """Where the agent answers health, and metrics unless `metrics.address` is set. Change the port if 12347 is taken; empty: no
    listener, then remove the probes too."""

    status_socket: OptionalSocketPath = "/run/vrampack/agent-status.sock"
    """The Unix socket that `vrampack limits status` reads usage from; only root may open it. Empty: no socket."""


class MetricsTlsSettings(StrictModel):
    """The files of the metrics listener. They are read again when they change."""

    cert_file: Path | None = Field(default=None, strict=False)
    """PEM certificate chain of this server."""

    key_file: Path | None = Field(default=None, strict=False)
    """PEM key of this server."""

    client_ca_file: Path | None = Field(default=None, strict=False)
    """PEM certificate of the authority that signs scrapers' certificates. Without it any client may connect, and `metrics.authorization` decides."""

    @model_validator(mode="after")
    def _check_pair(self) -> MetricsTlsSettings:
        if (self.cert_file is None) != (self.key_file is None) or (self.client_ca_file and self.cert_file is None):
            raise ValueError("give cert_file and key_file together, and client_ca_file only with them")
        return self


class MetricsSettings(StrictModel):
    """Who may read `/metrics`, whose series name the namespaces, pods and containers of all tenants of the node."""

    address: OptionalListenAddress = ""
    """A listener for `/metrics` alone; `listen.health` then no longer serves it. Use it with `tls`, or on loopback."""

    tls: MetricsTlsSettings = MetricsTlsSettings()

    authorization: Literal["none", "token"] = "none"
    """`token`: a client must send a bearer token of an account that RBAC allows to `get` the URL `/metrics`. It needs `tls`."""

    @model_validator(mode="after")
    def _check_listener(self) -> MetricsSettings:
        if self.tls.cert_file is not None and not self.address:
            raise ValueError("tls needs an address, because probes of listen.health come without TLS")
        if self.authorization == "token" and self.tls.cert_file is None:
            raise ValueError("authorization: token needs tls, or the token can be read in transit")
        return self


class CardSelection(StrictModel):
    """Which cards the agent offers, by UUID."""

    include: tuple[str, ...] = Field(default=(), strict=False)
    """Only these. Set it if NVIDIA's device plugin offers the other cards of the node: then both may run there."""

    exclude: tuple[str, ...] = Field(default=(), strict=False)
    """All but these, for the same purpose."""

    @model_validator(mode="after")
    def _check_not_both(self) -> CardSelection:
        if self.include and self.exclude:
            raise ValueError("give include or exclude, not both")
        return self

    @property
    def are_selected(self) -> bool:
        """Whether the cards are divided between two plugins."""
        return bool(self.include or self.exclude)


XidNumbers = tuple[Annotated[int, Field(ge=1)], ...]


class XidSettings(StrictModel):
    """What an error that the driver reports means for the card, if that should differ from NVIDIA's catalogue."""

    ignore: XidNumbers = Field(default=(), strict=False)
    """XID numbers that do not take a card out of use."""

    fatal: XidNumbers = Field(default=(), strict=False)
    """XID numbers that do, although the catalogue asks only for a restart of the program or for nothing."""

    reset: XidNumbers = Field(default=(), strict=False)
    """XID numbers after which a card stays out of use until its GPU is reset."""

    reboot: XidNumbers = Field(default=(), strict=False)
    """XID numbers after which a card stays out of use until its node is rebooted."""

    human: XidNumbers = Field(default=(), strict=False)
    """XID numbers after which a card stays out of use until `vrampack card heal`."""


class SickCardEviction(StrictModel):
    """Whether pods are evicted from a card that does not recover by itself, and how fast."""

    pods: int = Field(default=0, ge=0, le=32)
    """How many pods of this node may be evicted in `per_minutes`. 0: pods stay on the card."""

    per_minutes: float = Field(default=60.0, gt=0, le=10_080)
    """The period that `pods` counts in, in minutes. A restarted agent starts a new one."""


class HealthSettings(StrictModel):
    """When a card is taken out of use and when it comes back."""

    check_seconds: float = Field(default=5.0, gt=0, le=600)
    """Seconds between two checks of all cards."""

    call_seconds: float = Field(default=10.0, gt=0, le=120)
    """Seconds after which a call to the driver counts as hung."""

    recover_after_checks: int = Field(default=3, ge=1, le=1000)
    """Clean checks in a row before an unhealthy card is offered again. Raise it for cards that come and go."""

    xids: XidSettings = XidSettings()
    evict: SickCardEviction = SickCardEviction()


class RejectedPodSettings(StrictModel):
    """What happens to pods that may not start."""

    action: Literal["evict", "keep"] = "evict"
    """`evict`: the Node lists them, and the extender evicts those that have a controller, so that their replacements are placed
    again. `keep`: they wait on the node."""

    after_seconds: float = Field(default=5.0, gt=0, le=3600)
    """How long a pod has to be refused before the Node lists it. The extender's `refused.evict_after_seconds` comes on top."""


class RuntimeClassSettings(StrictModel):
    """Under which runtime classes containers with a card may start. No limit is enforced under a handler that does not call our hook."""

    allow: tuple[str, ...] | None = Field(default=None, strict=False)
    """Only these, and pods without a runtime class. If it is not given: all but those in `refuse`."""

    refuse: tuple[str, ...] = Field(default=("nvidia-cdi", "nvidia-legacy"), strict=False)
    """Never these. The default is the two handlers that call no hook as NVIDIA's toolkit installs them."""

    def is_allowed(self, name: str) -> bool:
        """Whether a pod of this runtime class may start; empty for none."""
        return not name or (name not in self.refuse and (self.allow is None or name in self.allow))


class OveruseSettings(StrictModel):
    """What happens to containers over their limit if no back end enforces it (`enforcement: watch`)."""

    slack_mib: int = Field(default=512, ge=0, le=1_048_576)
    """MiB that a container may use above its limit, because a process costs more than it allocates: about 450 MiB on a T4."""

    evict_after_seconds: float | None = Field(default=None, gt=0, le=86_400)
    """How long a container may stay over its limit before its pod is evicted. If it is not given, no pod is: an event names the container."""


class KmodSettings(StrictModel):
    """What the kernel module does with containers for which it was given no limit (`enforcement: kmod`)."""

    unknown: Literal["pass", "deny"] = "pass"
    """`deny`: they get no memory of any card, unless they have `CAP_SYS_ADMIN` on the node. This needs cgroup v2."""

    unknown_cgroups: tuple[Annotated[str, Field(pattern=r"^(/[^/\s]+)+$")], ...] = Field(default=(), strict=False)
    """The cgroups below which `unknown` applies, as paths from the root, such as `/system.slice`. If it is not given: kubelet's."""


class CdiSettings(StrictModel):
    """Where `injection: cdi` finds things on the node."""

    folder: Path = Field(default=Path("/var/run/cdi"), strict=False)
    """Where the agent writes specs: one of the folders that the runtime reads, mounted into the agent's pod at the same path."""

    drm_nodes: bool = False
    """Whether containers also get the card's device nodes in /dev/dri, for programs that draw. Through them a program can exceed its limit."""

    driver_capabilities: tuple[DriverCapability, ...] = Field(
        default=("compute", "utility"), strict=False, min_length=1
    )
    """`NVIDIA_DRIVER_CAPABILITIES` of every container that gets its card by `cdi`, whatever its pod or image says."""

    hook: Path | None = Field(default=None, strict=False)
    """The path of vrampack-hook on the node. If it is given, specs name the hook, and it needs no other installation."""

    nvidia_ctk: Path = Field(default=Path("/usr/local/nvidia/toolkit/nvidia-ctk"), strict=False)
    """The toolkit's program, at this path in the agent's pod. If it is there, the agent runs it for cards that no spec names."""

    driver_root: str = Field(default="/", min_length=1)
    """Where `nvidia_ctk` finds the driver: `/run/nvidia/driver` if the GPU Operator installs it."""


class UsageLeaseSettings(StrictModel):
    """The Lease in which the agent publishes how much memory of the node's cards is really used, for the extender and for people."""

    namespace: OptionalNamespace = ""
    """The namespace of the Lease: the one that the agents run in. Empty: no Lease is written."""

    interval_seconds: float = Field(default=60.0, ge=60, le=300)
    """The shortest time between two writes. Raise it if the API server has too many writes."""


class StandaloneSettings(StrictModel):
    """A host without Kubernetes: `vrampack agent --standalone`, or `mode: standalone`."""

    overcommit: Literal["refuse", "allow"] = "refuse"
    """`refuse`: the limits of running containers add up to a card's memory at most. `allow`: they may exceed it, and a container may find no memory free."""


class AgentConfiguration(StrictModel):
    """The whole file. Every field has a default, so a file with only `apiVersion` and `kind` is valid."""

    apiVersion: Literal["vrampack.dev/v1"]  # noqa: N815 - Kubernetes' own spelling
    kind: Literal["AgentConfiguration"]

    mode: Literal["kubernetes", "standalone"] = "kubernetes"
    """`standalone`: a host without Kubernetes, where a container's own environment sets its limit. The flag `--standalone` does the same."""

    unit_mib: int = Field(default=DEFAULT_UNIT_MIB, ge=1, le=1_048_576)
    """MiB per unit of the resource: the same as the extender's `unit_mib`. A node with another value gets no pods.
    Running pods keep their memory when it changes; requests count in the new unit."""

    units_per_card: Mapping[str, CardUnits] = {}
    """Units of a card by its model, as `nvidia-smi -L` names it, instead of memory / unit_mib: e.g. `Tesla T4: 15`.
    Running pods keep their memory when it changes."""

    injection: Literal["auto", "cdi", "exact"] = "auto"
    """How a container gets its cards. `cdi`: by a spec that the agent writes when the container starts. `exact`: by its
    environment, which admission sets. `auto`: `cdi` if the agent sees that the container runtime reads specs, else `exact`."""

    cdi: CdiSettings = CdiSettings()

    devices: Literal["auto", "uuid", "cdi"] = "auto"
    """How a card is named to the container runtime. `auto`: by CDI if the node has specs of NVIDIA's kind for all cards, else by UUID."""

    read_as: ReadAs = "auto"
    """The identity that reads pods and nodes. `node`: this node, which may read itself and its own pods only (Kubernetes 1.36).
    `account`: the agents' service account, which then needs the right to read all of them. `auto`: the node if that is allowed,
    else the account."""

    enforcement: Literal["auto", "native", "kmod", "preload", "watch", "none"] = "auto"
    """What enforces limits. `auto`: the strongest back end that works on this node."""

    resources: AgentResources = AgentResources()
    listen: AgentListen = AgentListen()
    metrics: MetricsSettings = MetricsSettings()
    cards: CardSelection = CardSelection()
    health: HealthSettings = HealthSettings()
    refused: RejectedPodSettings = RejectedPodSettings()
    runtime_classes: RuntimeClassSettings = RuntimeClassSettings()
    watch: OveruseSettings = OveruseSettings()
    kmod: KmodSettings = KmodSettings()
    usage_lease: UsageLeaseSettings = UsageLeaseSettings()
    standalone: StandaloneSettings = StandaloneSettings()

    kubelet_folder: Path = Field(default=Path("/var/lib/kubelet"), strict=False)
    """Kubelet's `--root-dir`, where its sockets are. The DaemonSet mounts the same paths."""

    @model_validator(mode="after")
    def _check_unknown_containers(self) -> AgentConfiguration:
        if self.kmod.unknown == "deny" and self.enforcement != "kmod":
            raise ValueError("kmod.unknown: deny needs enforcement: kmod, since nothing else can enforce it")
        if self.kmod.unknown == "deny" and self.cards.are_selected:
            raise ValueError("kmod.unknown: deny covers every card, so it needs cards.include and cards.exclude empty")
        return self


def load_settings(path: Path | None, overrides: Overrides | None = None) -> AgentConfiguration:
    """The configuration of `path`, or the defaults without one.

    Raises `SettingsError` naming the path of every fault.
    """
    return load_configuration(AgentConfiguration, "AgentConfiguration", path, overrides)
