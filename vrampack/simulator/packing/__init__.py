"""How tightly policies pack: arrivals placed by the extender's own ledger and engine, without Kubernetes.

docs/packing.md says what is measured, and what the figures do not say. Read `packed_cluster.py` first.
"""
