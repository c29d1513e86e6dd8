"""`kubectl inspect cgpu` and `vrampack inspect`: who holds how much of which card, read from the API server alone.

Imports `cards` and the standard library only, because it ships as one file that runs wherever kubectl does. Where the
objects come from is a `ListReader`; `inspect_cluster` makes the value that every output format prints. Read `main.py` first.
"""
