"""The model of vrampack: cards, nodes, requests, allocations, and how each is written down.

Everything here is a frozen value or a pure function on the standard library: no clock, no network,
no file. Code that needs a policy is in `policies/`, code that knows the API server in `vrampack/kube/`.
Read `node.py` and `request.py` first, then `reasons.py` and `fit.py`, then `records.py`.
"""
