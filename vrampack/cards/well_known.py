"""Every name that we use in a cluster: resources, labels, annotations. Each is defined here once."""

from __future__ import annotations

MEMORY_RESOURCE = "aliyun.com/gpu-mem"
COUNT_RESOURCE = "aliyun.com/gpu-count"
"""Node capacity of a legacy plugin; the pod *label* of the same name asks for several cards."""

COUNT_LABEL = "aliyun.com/gpu-count"
PLACEMENT_LABEL = "ack.gpushare.placement"
WHOLE_DEVICE = "require-whole-device"

POLICY = "vrampack.dev/policy"
CARD_MODEL = "vrampack.dev/card-model"
CARD_UUID = "vrampack.dev/card-uuid"

NODE_CARDS = "vrampack.dev/cards"
NODE_OBSERVED = "vrampack.dev/observed"
NODE_REFUSED = "vrampack.dev/refused"
KEPT_FROM_AUTOSCALERS = "vrampack.dev/kept-from-autoscalers"
"""Node annotation of the extender: since when autoscalers shall leave the node alone, or `ended`."""
PLACEHOLDER_SCHEDULER = "vrampack-placeholder"
"""`schedulerName` of pods for which an autoscaler shall make a node: no scheduler has this name, and the extender refuses them."""
PLACEHOLDER_NAMESPACE = "vrampack-placeholders"
CORDONED_CARDS = "vrampack.dev/cordoned-cards"
HEALED_CARDS = "vrampack.dev/healed-cards"
"""By it operators say that a card is repaired; the agent never writes it."""
CARDS_CONDITION = "VrampackCardsHealthy"
"""The Node condition that the agent writes."""
ENFORCEMENT = "vrampack.dev/enforcement"
"""Node label: what enforces limits there."""
INJECTION = "vrampack.dev/injection"
"""Node label: how containers get their cards there."""

USAGE = "vrampack.dev/usage"
"""On the Lease `vrampack-usage-<node>`: the measured use of the node's cards."""
USAGE_LEASE_PREFIX = "vrampack-usage-"

ALLOCATION = "vrampack.dev/allocation"
VISIBLE_DEVICES_PREFIX = "visible-devices.vrampack.dev/"
LIMIT_MIB_PREFIX = "limit-mib.vrampack.dev/"

PREEMPTION_CONDITION = "vrampack.dev/Preempting"
"""The condition of a pod for which others are evicted by card; its message is the node. Nobody can create a pod with it."""
PLACEMENT_CONDITION = "VrampackPlacement"
"""The condition of a pod that was refused: its reason and its message say why. Nobody can create a pod with it."""
RETRY_ANNOTATION = "vrampack.dev/retry"
"""On a pending pod; not part of a record. A new value makes the scheduler try the pod again."""

GPUSHARE_ALLOCATION = "scheduler.framework.gpushare.allocation"
GPUSHARE_V3_MEMORY = "gpushare.alibabacloud.com/gpumemory"
GPUSHARE_IDX = "ALIYUN_COM_GPU_MEM_IDX"
GPUSHARE_POD = "ALIYUN_COM_GPU_MEM_POD"
GPUSHARE_DEV = "ALIYUN_COM_GPU_MEM_DEV"
GPUSHARE_ASSIGNED = "ALIYUN_COM_GPU_MEM_ASSIGNED"
GPUSHARE_ASSUME_TIME = "ALIYUN_COM_GPU_MEM_ASSUME_TIME"

RECORD_ANNOTATIONS = frozenset(
    (
        ALLOCATION,
        GPUSHARE_ALLOCATION,
        GPUSHARE_V3_MEMORY,
        GPUSHARE_IDX,
        GPUSHARE_POD,
        GPUSHARE_DEV,
        GPUSHARE_ASSIGNED,
        GPUSHARE_ASSUME_TIME,
    )
)
"""Of a pod; a record also has annotations for each container, under the two prefixes above."""

CDI_KIND = "k8s.device-plugin.nvidia.com/gpu"
"""The CDI kind whose container hooks apply memory limits; a bare uuid does not resolve there."""
