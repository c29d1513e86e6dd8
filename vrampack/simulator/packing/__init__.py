"""How tight policies pack: arrivals that are placed by the extender's own ledger and engine, without any Kubernetes.

What is measured, and what the figures do not say, is in docs/packing.md. Read `packed_cluster.py` first.
"""
