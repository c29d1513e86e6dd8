"""A row for each value of the chart: what to set, what is then in the objects and was not before, and what is refused."""

from __future__ import annotations

from tests.support.manifests import Json

MEMORY = {"limits": {"memory": "999Mi"}}
SEEN_MEMORY = "memory: 999Mi"
BAD_RESOURCES = {"limits": {"gpu": 1}}
TAINT = [{"key": "team-taint", "operator": "Exists"}]
BAD_TAINT = [{"effect": "Sometimes"}]
AFFINITY = {
    "podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": "example.com/rack"}]}
}
PROXY = [{"name": "HTTPS_PROXY", "value": "http://proxy:3128"}]
DIGEST = "sha256:" + "0123456789abcdef" * 4
CASES: dict[str, tuple[Json, str, Json]] = {
    "shape": ("kubeadm", "hostNetwork: true", "third-scheduler"),
    "image.repository": ("registry.example.com:5000/v", "image: registry.example.com:5000/v:", "Registry/v"),
    "image.tag": ("2.0.0", "vrampack/vrampack:2.0.0", "two words"),
    "image.digest": (DIGEST, f"@{DIGEST}\n", "latest"),
    "imagePullSecrets": ([{"name": "registry"}], "- name: registry\n", ["registry"]),
    "releaseLabels": (False, "", "no"),
    "namespace.create": (True, "kind: Namespace", "yes"),
    "listenAddress": ("[::]", 'health: "[::]:12347"', "127.0.0.1"),
    "unitMib": (512, "unit_mib: 512", 0),
    "policy": ({"default": "binpack"}, "default: binpack", {"default": "tightest"}),
    "profiles": ([{"name": "serving", "policy": "spread"}], "- name: serving", [{"name": "serving"}]),
    "rules": ({"share_with": "same-namespace"}, "share_with: same-namespace", {"share": "same-namespace"}),
    "usageLeases.enabled": (True, "usage_lease:\n", "yes"),
    "usageLeases.intervalSeconds": (120, "interval_seconds: 120", 59),
    "extender.config": ({"deadlines": {"bind_seconds": 4}}, "httpTimeout: 6s", {"reserve": 450}),
    "extender.resources": (MEMORY, SEEN_MEMORY, BAD_RESOURCES),
    "extender.nodeSelector": ({"pool": "system"}, "pool: system", {"kubernetes.io/os": "linux"}),
    "extender.tolerations": (TAINT, "key: team-taint", BAD_TAINT),
    "extender.affinity": (AFFINITY, "topologyKey: example.com/rack", {"nodes": {}}),
    "extender.priorityClassName": ("gpu-critical", "priorityClassName: gpu-critical", ""),
    "extender.podLabels": ({"team": "gpu"}, "team: gpu", {"app.kubernetes.io/name": "mine"}),
    "extender.podAnnotations": (
        {"example.com/mesh": "off"},
        'example.com/mesh: "off"',
        {"kubectl.kubernetes.io/default-container": "mine"},
    ),
    "extender.extraEnv": (PROXY, "name: HTTPS_PROXY", [{"name": "NODE_NAME", "value": "n"}]),
    "scheduler.name": ("packer", "- schedulerName: packer", "Packer"),
    "scheduler.others": (["batch"], "['vrampack', 'batch']", "batch"),
    "scheduler.replicas": (3, "replicas: 3", 0),
    "scheduler.image.repository": ("mirror.example.com/ks", "image: mirror.example.com/ks:v", ""),
    "scheduler.image.tag": ("v1.35.9", "kube-scheduler:v1.35.9", ""),
    "scheduler.image.digest": (DIGEST, f"v1.36.3@{DIGEST}\n", "sha256:abc"),
    "scheduler.weight": (1, "weight: 1\n", 0),
    "scheduler.percentageOfNodesToScore": (30, "percentageOfNodesToScore: 30", 101),
    "scheduler.qps": (77, "qps: 77", -1),
    "scheduler.burst": (78, "burst: 78", "many"),
    "scheduler.resources": (MEMORY, SEEN_MEMORY, BAD_RESOURCES),
    "agent.config": ({"kubelet_folder": "/data/kubelet"}, "path: /data/kubelet/pod-resources", {"injection": "x"}),
    "agent.driver": ("gpu-operator-nri", "nvidia.cdi.k8s.io/container.agent", "nvidia"),
    "agent.runtimeClassName": ("gpu", "runtimeClassName: gpu", "G P U"),
    "agent.readAs": ("account", "Pods and Nodes of the whole cluster", "cluster"),
    "agent.kernelModule": (True, "add: [SYS_ADMIN]", "yes"),
    "agent.nodeLabels": (["example.com/gpu"], "key: example.com/gpu", []),
    "agent.tolerations": (TAINT, "key: team-taint", BAD_TAINT),
    "agent.maxUnavailable": (3, "maxUnavailable: 3\n", "0%"),
    "agent.resources": (MEMORY, SEEN_MEMORY, BAD_RESOURCES),
    "agent.nodeSelector": ({"pool": "system"}, "pool: system", {"pool": 1}),
    "agent.affinity": (AFFINITY, "topologyKey: example.com/rack", {"nodes": {}}),
    "agent.priorityClassName": ("gpu-critical", "priorityClassName: gpu-critical", ""),
    "agent.podLabels": ({"team": "gpu"}, "team: gpu", {"app.kubernetes.io/name": "mine"}),
    "agent.podAnnotations": ({"example.com/mesh": "off"}, 'example.com/mesh: "off"', {"a": 1}),
    "agent.extraEnv": (PROXY, "name: HTTPS_PROXY", [{"name": "NODE_NAME", "value": "n"}]),
    "agent.metrics.tlsSecret": ("agent-tls", "secret: {secretName: agent-tls,", "Agent TLS"),
    "agent.metrics.tokenSecret": ("scraper", "credentials: {name: scraper, key: token}", "Scraper"),
    "admission.form": ("webhook", "kind: MutatingWebhookConfiguration", "auto"),
    "admission.exact": (True, "name: vrampack-environment-inject", "auto"),
    "admission.legacyPlugin": ("system:serviceaccount:a:b", "\"'system:serviceaccount:a:b'\"", "gpushare"),
    "admission.refuseNamedCards.enabled": (True, "name: vrampack-visible-devices", "yes"),
    "admission.trustedNamespaces": (["dcgm"], '["dcgm", "vrampack-system"]', "dcgm"),
    "admission.runtimeClassNames": (["nvidia", "gpu"], "['nvidia', 'gpu']", "nvidia"),
    "admission.void": ("always", "name: vrampack-void-ephemeral", "sometimes"),
    "admission.voidExceptResources": (["example.com/gpu"], "['example.com/gpu']", "example.com/gpu"),
    "admission.webhook.replicas": (5, "replicas: 5", 0),
    "admission.webhook.config": ({"deadlines": {"drain_seconds": 9}}, "drain_seconds: 9", {"tls": {}}),
    "admission.webhook.apiServers": (["192.0.2.1/32"], 'cidr: "192.0.2.1/32"', ["any"]),
    "admission.webhook.resources": (MEMORY, SEEN_MEMORY, BAD_RESOURCES),
    "admission.webhook.nodeSelector": ({"pool": "system"}, "pool: system", {"pool": 1}),
    "admission.webhook.affinity": (AFFINITY, "topologyKey: example.com/rack", {"nodes": {}}),
    "admission.webhook.priorityClassName": ("gpu-critical", "priorityClassName: gpu-critical", ""),
    "admission.webhook.podLabels": ({"team": "gpu"}, "team: gpu", {"app.kubernetes.io/name": "mine"}),
    "admission.webhook.podAnnotations": ({"example.com/mesh": "off"}, 'example.com/mesh: "off"', {"a": 1}),
    "admission.webhook.extraEnv": (PROXY, "name: HTTPS_PROXY", [{"name": "NODE_NAME", "value": "n"}]),
    "admission.webhook.certificate.source": (
        "cert-manager",
        "cert-manager.io/inject-ca-from: vrampack-system/",
        "self",
    ),
    "admission.webhook.certificate.secretName": ("mine", "secretName: mine", "My Secret"),
    "admission.webhook.certificate.caBundle": ("REVG", "caBundle: REVG", "PEM"),
    "admission.webhook.certificate.issuer": (
        {"name": "internal", "kind": "ClusterIssuer"},
        "kind: ClusterIssuer",
        {"kind": "Issuer"},
    ),
    "networkPolicy.enabled": (False, "", "no"),
    "networkPolicy.scrapers": ({"team": "sre", "metrics": None}, "team: sre", {"metrics": 1}),
    "prometheus.monitors": (True, "kind: PodMonitor", "auto"),
    "prometheus.rules": (True, "alert: VrampackCardOvercommitted", "auto"),
    "prometheus.labels": ({"release": "prom"}, "release: prom", {"release": 1}),
    "prometheus.interval": ("30s", "interval: 30s", "often"),
    "grafana.dashboards": (True, "vrampack-gpu-node.json: |", "yes"),
    "grafana.labels": ({"dashboards": "all"}, "dashboards: all", {"dashboards": 1}),
    "configMaps.create": (False, "name: vrampack-agent-config\n", "no"),
}
"""By path. Nothing is looked for where an object goes away."""
WEBHOOK = {"admission.form": "webhook", "admission.exact": True, "admission.webhook.certificate.source": "job"}
SECRET = WEBHOOK | {
    "admission.webhook.certificate.source": "secret",
    "admission.webhook.certificate.secretName": "theirs",
    "admission.webhook.certificate.caBundle": "QUJD",
}
BESIDE: dict[str, dict[str, Json]] = {
    "agent.runtimeClassName": {"agent.driver": "runtime-class"},
    "admission.form": {key: value for key, value in WEBHOOK.items() if key != "admission.form"},
    "admission.voidExceptResources": {"admission.void": "always"},
    "admission.webhook.replicas": WEBHOOK,
    "admission.webhook.config": WEBHOOK,
    "admission.webhook.apiServers": WEBHOOK,
    "admission.webhook.resources": WEBHOOK,
    "admission.webhook.nodeSelector": WEBHOOK,
    "admission.webhook.affinity": WEBHOOK,
    "admission.webhook.priorityClassName": WEBHOOK,
    "admission.webhook.podLabels": WEBHOOK,
    "admission.webhook.podAnnotations": WEBHOOK,
    "admission.webhook.extraEnv": WEBHOOK,
    "admission.webhook.certificate.source": WEBHOOK,
    "admission.webhook.certificate.secretName": SECRET,
    "admission.webhook.certificate.caBundle": SECRET,
    "admission.webhook.certificate.issuer": WEBHOOK | {"admission.webhook.certificate.source": "cert-manager"},
    "agent.metrics.tokenSecret": {"prometheus.monitors": True, "agent.metrics.tlsSecret": "agent-tls"},
    "usageLeases.intervalSeconds": {"usageLeases.enabled": True},
    "prometheus.labels": {"prometheus.monitors": True},
    "prometheus.interval": {"prometheus.monitors": True},
    "grafana.labels": {"grafana.dashboards": True},
}
"""Other values that one needs to be seen. They are set in the text without it, too."""
