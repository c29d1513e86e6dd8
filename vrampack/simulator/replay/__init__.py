"""Replays a cluster's snapshot: places its pods again under other policies, on other nodes, or with other arrivals.

Nothing here talks to a cluster. Read `replay.py` first; `kept_fields.py` says what a snapshot keeps.
"""
