"""The engine: asks the policies about every node of the ledger and keeps their verdicts while nothing changes.

Start with `engine.py`. A policy itself never caches.
"""
