"""The node program: finds cards, publishes them, and lets a container start only with exactly its own.

Like `extender` it builds on `cards` and `kube`, but it knows neither policies nor the ledger: a pod's record says what
the pod was given. Read `fence.py` first (which containers may start), then `device_plugin.py` (what kubelet asks).
"""
