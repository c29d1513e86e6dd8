"""The engine: asks the policies about every node of the ledger and caches their verdicts until a node changes.

Start with `engine.py`. A policy itself never caches.
"""
