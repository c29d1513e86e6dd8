"""A cluster's snapshot, and its pods placed again: under other policies, on other nodes, or beside other arrivals.

Nothing here talks to a cluster. Read `replay.py` first; `trimming.py` says what a snapshot keeps.
"""
