"""`kubectl inspect cgpu` and `vrampack inspect`: who holds how much of which card, read from the API server alone.

It imports only `cards` and the standard library, because it ships as one file that runs wherever kubectl does. A
`ListReader` reads the objects; `inspect_cluster` builds the value that every output format prints. Read `main.py` first.
"""
