"""The three dashboards. A panel says what a query tells, and a query that finds nothing shows nothing: no zero is made up."""

from __future__ import annotations

from dashboards.panels import RATE, Dashboard, Panel

LIMIT = "vrampack_agent_container_memory_limit_bytes"
USED = "vrampack_agent_container_memory_used_bytes"
OF_PODS = '{namespace=~"$namespace",pod=~"$pod"}'
OF_NODES = '{node=~"$node"}'

GPU_APP = Dashboard(
    "vrampack-gpu-app",
    "GPU APP",
    "GPU memory of applications: what their pods may use, what they use, and where it is.",
    (
        Panel(
            "Memory given",
            "What the containers of each pod may use, over all their cards.",
            f"sum by (namespace, pod) ({LIMIT}{OF_PODS})",
            "{{namespace}}/{{pod}}",
            "bytes",
        ),
        Panel(
            "Memory used",
            "What they use. Empty where neither the driver nor the back end reports it.",
            f"sum by (namespace, pod) ({USED}{OF_PODS})",
            "{{namespace}}/{{pod}}",
            "bytes",
        ),
        Panel(
            "Used of the limit",
            "1 means at the limit. A pod that is always far below it could request less.",
            f"sum by (namespace, pod) ({USED}{OF_PODS}) / sum by (namespace, pod) ({LIMIT}{OF_PODS})",
            "{{namespace}}/{{pod}}",
            "percentunit",
        ),
        Panel(
            "Refused allocations",
            "Refused allocations beyond the limit, per second; only with kmod and preload.",
            f"sum by (namespace, pod) (rate(vrampack_agent_container_refused_allocations_total{OF_PODS}[{RATE}]))",
            "{{namespace}}/{{pod}}",
            "ops",
        ),
        Panel(
            "Cards",
            "Which container has how much of which card.",
            f"sum by (namespace, pod, container, node, gpu, UUID) ({LIMIT}{OF_PODS})",
            "",
            "bytes",
            "table",
        ),
        Panel(
            "Utilization of its cards",
            "From dcgm-exporter: how busy the cards of a pod are, counting all pods on them.",
            f"max by (namespace, pod) ({LIMIT}{OF_PODS} * 0 + on (UUID) group_left () max by (UUID) (DCGM_FI_DEV_GPU_UTIL)) / 100",
            "{{namespace}}/{{pod}}",
            "percentunit",
        ),
    ),
    {"namespace": LIMIT, "pod": LIMIT},
)

GPU_NODE = Dashboard(
    "vrampack-gpu-node",
    "GPU Node",
    "GPU memory of nodes and cards: how much there is, how much is assigned, and how much is in use.",
    (
        Panel(
            "Cluster memory",
            "Memory of all cards that the extender knows.",
            "sum(vrampack:node_memory_capacity:bytes)",
            "memory",
            "bytes",
            "stat",
            8,
        ),
        Panel(
            "Given away",
            "Share of that memory that pods hold.",
            "vrampack:cluster_memory_allocated:ratio",
            "given away",
            "percentunit",
            "stat",
            8,
        ),
        Panel(
            "Cards with an agent",
            "Cards of all nodes whose agent is scraped.",
            "count(vrampack_agent_card_info)",
            "cards",
            "short",
            "stat",
            8,
        ),
        Panel(
            "Given away by node",
            "The share of the node's memory that pods hold.",
            f"vrampack:node_memory_allocated:bytes{OF_NODES} / vrampack:node_memory_capacity:bytes{OF_NODES}",
            "{{node}}",
            "percentunit",
        ),
        Panel(
            "Free in pieces",
            "Free memory of a node that is not on its freest card: no pod with one card gets it at once.",
            f"max by (node) (vrampack_fragmented_free_bytes{OF_NODES})",
            "{{node}}",
            "bytes",
        ),
        Panel(
            "Held on each card",
            "The share of the card's units that pods hold.",
            f"vrampack_agent_card_held_units{OF_NODES} / vrampack_agent_card_units{OF_NODES}",
            "{{node}} {{gpu}}",
            "percentunit",
        ),
        Panel(
            "In use on each card",
            "As the driver reports it, for all processes.",
            f"vrampack_agent_card_memory_used_bytes{OF_NODES}",
            "{{node}} {{gpu}}",
            "bytes",
        ),
        Panel(
            "Unhealthy cards",
            "They get no new pods.",
            f"vrampack_agent_card_healthy{OF_NODES} == 0",
            "{{node}} {{gpu}}",
            "short",
        ),
        Panel(
            "Temperature",
            "From dcgm-exporter, by node and card.",
            f"max by (node, gpu) (vrampack_agent_card_info{OF_NODES} * on (UUID) group_left () max by (UUID) (DCGM_FI_DEV_GPU_TEMP))",
            "{{node}} {{gpu}}",
            "celsius",
        ),
    ),
    {"node": "vrampack_node_memory_capacity_bytes"},
)

VRAMPACK = Dashboard(
    "vrampack",
    "vrampack",
    "The extender and its agents: decisions, binds, what waits, and whether the ledger can be trusted.",
    (
        Panel(
            "Verbs, 99th percentile",
            "From a verb's last byte received to its answer. The scheduler gives up after 5 s.",
            f"histogram_quantile(0.99, sum by (verb, le) (rate(vrampack_extender_request_duration_seconds_bucket[{RATE}])))",
            "{{verb}}",
            "s",
        ),
        Panel(
            "Binds",
            "Per second, by result. conflict and no_capacity are normal: the cluster changed meanwhile.",
            f"sum by (result) (rate(vrampack_bind_total[{RATE}])) > 0",
            "{{result}}",
            "ops",
        ),
        Panel(
            "Pods that wait",
            "fits: it is the scheduler's turn. fragmented: a node has enough free memory, but no card. full: no node has enough. never: no node can ever serve it.",
            "vrampack:pending_pods:count",
            "{{reason}}",
        ),
        Panel(
            "Fresh ledgers",
            "1 for each extender whose ledger is complete and fresh.",
            "max by (pod) (vrampack_cache_synced)",
            "{{pod}}",
        ),
        Panel(
            "Places not seen yet",
            "Reservations whose Binding the watch has not shown yet.",
            "max by (pod) (vrampack_reservations)",
            "{{pod}}",
        ),
        Panel(
            "Activations",
            "Waiting pods activated per second, by outcome.",
            f"sum by (result) (rate(vrampack_pod_activations_total[{RATE}]))",
            "{{result}}",
            "ops",
        ),
        Panel(
            "Refused starts",
            "Refused container starts per second, by reason.",
            f'sum by (result) (rate(vrampack_agent_starts_total{{result!~"ok|older"}}[{RATE}])) > 0',
            "{{result}}",
            "ops",
        ),
        Panel(
            "Who holds limits",
            "Nodes by back end.",
            "count by (mode) (vrampack_agent_enforcement_info)",
            "{{mode}}",
        ),
    ),
)

DASHBOARDS = (GPU_APP, GPU_NODE, VRAMPACK)
