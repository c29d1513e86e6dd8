"""The recipe docs/recipes/hpa.md on the real HPA controller, Prometheus, prometheus-adapter and KEDA.

`python -m tests.e2e.recipes.hpa` runs it. What is not real: kubelets (`ScriptedKubelet`), the inference servers
(`InferenceServers`), and kube-proxy and cluster DNS (`cluster_network`). Time runs faster (`fast_time`).
"""
