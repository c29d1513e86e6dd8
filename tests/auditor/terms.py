"""The names and numbers a cluster may set, and the name of a violation."""

from dataclasses import dataclass

WHOLE_DEVICE = "require-whole-device"
ALLOCATION_V2 = "scheduler.framework.gpushare.allocation"
ALLOCATION_V3 = "gpushare.alibabacloud.com/gpumemory"
V1 = "ALIYUN_COM_GPU_MEM_"
LARGEST_ASK = 1_048_576


@dataclass(frozen=True, slots=True)
class Terms:
    """What the auditor takes as given; the defaults are the contract's own."""

    memory: str = "aliyun.com/gpu-mem"
    count: str = "aliyun.com/gpu-count"
    placement: str = "ack.gpushare.placement"
    domain: str = "vrampack.dev"
    unit_mib: int = 1024
    reserve_mib: int = 0
    whole_cards_are_paid: bool = False
    """Whether pods must ask for all units of their whole cards, as by `rules.whole_cards: paid`."""

    @property
    def allocation(self) -> str:
        return f"{self.domain}/allocation"

    @property
    def visible_devices(self) -> str:
        return f"visible-devices.{self.domain}/"

    @property
    def limit_mib(self) -> str:
        return f"limit-mib.{self.domain}/"

    def is_record(self, annotation: str) -> bool:
        """True for the annotations that only the extender may write."""
        prefixes = (self.visible_devices, self.limit_mib, "scheduler.framework.gpushare.", V1)
        return annotation == self.allocation or annotation.startswith(prefixes)


@dataclass(frozen=True, slots=True, order=True)
class Violation:
    """One broken promise: which (`I1`), of what (`pod ml/train-0`), and what was seen."""

    invariant: str
    object: str
    text: str

    def __str__(self) -> str:
        line = f"{self.invariant} {self.object}: {self.text}"
        return line.encode(errors="backslashreplace").decode()  # a record may hold what no terminal can show
