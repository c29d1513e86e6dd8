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
from vrampack.config.strict import StrictModel, load_configuration
from vrampack.kube.node_api import ReadAs

DriverCapability = Literal["compute", "compat32", "display", "graphics", "ngx", "utility", "video"]
CardUnits = Annotated[int, Field(ge=1, le=MAX_UNITS)]


class AgentResources(StrictModel):
    """What the cluster calls the memory of cards."""

    memory: ResourceName = well_known.MEMORY_RESOURCE
    """The resource that is registered with kubelet; the extender's `resources.memory`."""


class AgentListen(StrictModel):
    """Where the agent answers people and probes."""

    health: OptionalListenAddress = "0.0.0.0:12347"
    """Health, and metrics unless they have an address of their own. Another port where 12347 is taken; empty for none, then take the
    probes away too."""

    status_socket: OptionalSocketPath = "/run/vrampack/agent-status.sock"
    """The unix socket that `vrampack limits status` asks who holds what, for root alone. Empty for none."""


class MetricsTlsSettings(StrictModel):
    """The files of the metrics listener; read again when they change."""

    cert_file: Path | None = Field(default=None, strict=False)
    """PEM certificate chain of this server."""

    key_file: Path | None = Field(default=None, strict=False)
    """PEM key of this server."""

    client_ca_file: Path | None = Field(default=None, strict=False)
    """PEM authority that signs scrapers. Without it any client may connect, and `metrics.authorization` decides."""

    @model_validator(mode="after")
    def _check_pair(self) -> MetricsTlsSettings:
        if (self.cert_file is None) != (self.key_file is None) or (self.client_ca_file and self.cert_file is None):
            raise ValueError("give cert_file and key_file together, and client_ca_file only with them")
        return self


class MetricsSettings(StrictModel):
    """Who may read `/metrics`, whose series name the namespaces, pods and containers of all tenants of the node."""

    address: OptionalListenAddress = ""
    """A listener for `/metrics` alone, which `listen.health` then does not serve. Give it with `tls`, or on the loopback."""

    tls: MetricsTlsSettings = MetricsTlsSettings()

    authorization: Literal["none", "token"] = "none"
    """`token`: a client must send a bearer token of an account that RBAC allows to `get` the URL `/metrics`. It needs `tls`."""

    @model_validator(mode="after")
    def _check_listener(self) -> MetricsSettings:
        if self.tls.cert_file is not None and not self.address:
            raise ValueError("tls needs an address: probes of listen.health come without TLS")
        if self.authorization == "token" and self.tls.cert_file is None:
            raise ValueError("authorization: token needs tls, or the token can be read on its way")
        return self


class CardSelection(StrictModel):
    """Which cards are ours, by uuid."""

    include: tuple[str, ...] = Field(default=(), strict=False)
    """Only these. Give it where NVIDIA's device plugin has the others: with it both may serve one node."""

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
    """What an error of the driver means for its card, where that should differ from NVIDIA's catalogue."""

    ignore: XidNumbers = Field(default=(), strict=False)
    """XID numbers that must not take a card."""

    fatal: XidNumbers = Field(default=(), strict=False)
    """XID numbers that must, although the catalogue asks for a restart of the program or for nothing."""

    reset: XidNumbers = Field(default=(), strict=False)
    """XID numbers after which a card stays out until its GPU was reset."""

    reboot: XidNumbers = Field(default=(), strict=False)
    """XID numbers after which a card stays out until its node was rebooted."""

    human: XidNumbers = Field(default=(), strict=False)
    """XID numbers after which a card stays out until `vrampack card heal`."""


class SickCardEviction(StrictModel):
    """Whether pods leave a card that will not heal by itself, and how fast."""

    pods: int = Field(default=0, ge=0, le=32)
    """The most pods of this node that are evicted in `per_minutes`. 0: pods stay on the card."""

    per_minutes: float = Field(default=60.0, gt=0, le=10_080)
    """The period of `pods`, in minutes. A restarted agent begins a new one."""


class HealthSettings(StrictModel):
    """When a card is given up and when it comes back."""

    check_seconds: float = Field(default=5.0, gt=0, le=600)
    """Between two looks at all cards."""

    call_seconds: float = Field(default=10.0, gt=0, le=120)
    """Seconds after which a call of the driver counts as hung."""

    recover_after_checks: int = Field(default=3, ge=1, le=1000)
    """Clean looks in a row before an unhealthy card is offered again. Raise it for cards that come and go."""

    xids: XidSettings = XidSettings()
    evict: SickCardEviction = SickCardEviction()


class RejectedPodSettings(StrictModel):
    """What becomes of pods that may not start."""

    action: Literal["evict", "keep"] = "evict"
    """`evict`: they are named on the Node, and the extender evicts those of a controller, so that the replacement finds another
    place. `keep`: they wait here."""

    after_seconds: float = Field(default=5.0, gt=0, le=3600)
    """How long a refusal lasts before the Node says so. The extender's `refused.evict_after_seconds` comes on top."""


class RuntimeClassSettings(StrictModel):
    """Under which runtime classes containers with a card may start. A handler that does not call our hook holds no limit."""

    allow: tuple[str, ...] | None = Field(default=None, strict=False)
    """Only these, and pods that name none. Without it all but those of `refuse`."""

    refuse: tuple[str, ...] = Field(default=("nvidia-cdi", "nvidia-legacy"), strict=False)
    """Never these: by default the two handlers of NVIDIA's toolkit that do not call a hook as it installs them."""

    def is_allowed(self, name: str) -> bool:
        """Whether a pod of this runtime class may start; empty for none."""
        return not name or (name not in self.refuse and (self.allow is None or name in self.allow))


class OveruseSettings(StrictModel):
    """What happens to containers over their limit where no back end holds it (`enforcement: watch`)."""

    slack_mib: int = Field(default=512, ge=0, le=1_048_576)
    """MiB above the limit that are allowed: a process costs more than it allocates, about 450 MiB on a T4."""

    evict_after_seconds: float | None = Field(default=None, gt=0, le=86_400)
    """Have a pod evicted that stays over its limit for this long. Without it no pod is evicted, and an event names the container."""


class KmodSettings(StrictModel):
    """What the kernel module does with containers that it is not told of (`enforcement: kmod`)."""

    unknown: Literal["pass", "deny"] = "pass"
    """`deny`: they get no memory of any card, unless they have `CAP_SYS_ADMIN` on the node. It takes cgroup v2."""

    unknown_cgroups: tuple[Annotated[str, Field(pattern=r"^(/[^/\s]+)+$")], ...] = Field(default=(), strict=False)
    """Below which cgroups they are looked for, as paths from the root: `/system.slice`. Without it below kubelet's."""


class CdiSettings(StrictModel):
    """Where `injection: cdi` finds things on the node."""

    folder: Path = Field(default=Path("/var/run/cdi"), strict=False)
    """Where specs are written: one of the folders that the runtime reads, mounted at the same path."""

    drm_nodes: bool = False
    """Also the card's nodes in /dev/dri, for programs that draw. A program can allocate past its limit through them."""

    driver_capabilities: tuple[DriverCapability, ...] = Field(
        default=("compute", "utility"), strict=False, min_length=1
    )
    """`NVIDIA_DRIVER_CAPABILITIES` of every container that gets its card by `cdi`, whatever pod and image say."""

    hook: Path | None = Field(default=None, strict=False)
    """Where the node has vrampack-hook. With it a limit that needs the hook needs no other installation of it."""

    nvidia_ctk: Path = Field(default=Path("/usr/local/nvidia/toolkit/nvidia-ctk"), strict=False)
    """The toolkit's program, asked where no spec names a card and where it is there, at that path in the agent's pod."""

    driver_root: str = Field(default="/", min_length=1)
    """Where the driver is installed, for that program; of the GPU Operator's driver `/run/nvidia/driver`."""


class UsageLeaseSettings(StrictModel):
    """What is really used of the node's cards, for the extender and for people: one Lease of this node."""

    namespace: OptionalNamespace = ""
    """Where the Lease is written: the agents' own namespace. Empty: nowhere."""

    interval_seconds: float = Field(default=60.0, ge=60, le=300)
    """Shortest time between two writes. Raise it where the API server is short of writes."""


class StandaloneSettings(StrictModel):
    """A host without Kubernetes: `vrampack agent --standalone`, or `mode: standalone`."""

    overcommit: Literal["refuse", "allow"] = "refuse"
    """`refuse`: the limits of running containers add up to a card's memory at most. `allow`: who comes late may find none."""


class AgentConfiguration(StrictModel):
    """The whole file. Every field has a default; an empty file with `apiVersion` and `kind` is a good one."""

    apiVersion: Literal["vrampack.dev/v1"]  # noqa: N815 - Kubernetes' own spelling
    kind: Literal["AgentConfiguration"]

    mode: Literal["kubernetes", "standalone"] = "kubernetes"
    """`standalone`: a host without Kubernetes, where a container's own environment is its limit. So is `--standalone`."""

    unit_mib: int = Field(default=DEFAULT_UNIT_MIB, ge=1, le=1_048_576)
    """MiB per unit of the resource, the extender's `unit_mib`. A node that says another gets no pods."""

    units_per_card: Mapping[str, CardUnits] = {}
    """Units by card model, as `nvidia-smi -L` names it, instead of memory / unit_mib: e.g. `Tesla T4: 15`."""

    injection: Literal["auto", "cdi", "exact"] = "auto"
    """How a container gets its cards. `cdi`: by a spec that the agent writes when it starts. `exact`: by its environment, which
    admission wires up. `auto`: `cdi` where the container runtime is seen to read specs, else `exact`."""

    cdi: CdiSettings = CdiSettings()

    devices: Literal["auto", "uuid", "cdi"] = "auto"
    """How a card is named to the container runtime. `auto`: by CDI where the node has specs of NVIDIA's kind for all cards."""

    read_as: ReadAs = "auto"
    """The identity that reads pods and nodes. `node`: this node, which may read itself and its own pods only (Kubernetes 1.36).
    `account`: the agents' account, which then needs the right to read all of them. `auto`: the node where that is allowed, else the
    account."""

    enforcement: Literal["auto", "native", "kmod", "preload", "watch", "none"] = "auto"
    """Who holds limits. `auto`: the strongest that this node can do."""

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
    """Where kubelet's sockets are; its `--root-dir`. The DaemonSet mounts the same paths."""

    @model_validator(mode="after")
    def _check_unknown_containers(self) -> AgentConfiguration:
        if self.kmod.unknown == "deny" and self.enforcement != "kmod":
            raise ValueError("kmod.unknown: deny needs enforcement: kmod, since nothing else can hold it")
        if self.kmod.unknown == "deny" and self.cards.are_selected:
            raise ValueError("kmod.unknown: deny covers every card, so it needs cards.include and cards.exclude empty")
        return self


def load_settings(path: Path | None, overrides: Mapping[str, str] | None = None) -> AgentConfiguration:
    """The configuration of `path`, or the defaults without one. `overrides` are fields of `listen`.

    Raises `SettingsError` naming the path of every fault.
    """
    return load_configuration(AgentConfiguration, "AgentConfiguration", path, overrides)
