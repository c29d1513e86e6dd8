"""The node program: finds cards, publishes them, and sees that a container starts with exactly its own.

It stands beside `extender` on `cards` and `kube` and knows neither policies nor the ledger: what a pod was given is
read from the pod's record. Read `fence.py` first (who may start), then `device_plugin.py` (what kubelet asks).
"""
