"""The node program: finds cards, publishes them, and lets a container start only with exactly its own.

Like `extender` it builds on `cards`, `kube`, `config` and `http`, but it knows neither policies nor the ledger: a pod's record says what
the pod was given. Read `admission/fence.py` first (which containers may start), then
`device_plugin/device_plugin.py` (what kubelet asks).
"""
