"""The node program: finds cards, publishes them, and lets a container start only with exactly its own.

Like `extender` it builds on `cards` and `kube`, and it knows neither policies nor the ledger: it reads from a pod's record
what the pod was given. Read `fence.py` first (which containers may start), then `device_plugin.py` (what kubelet asks).
"""
