"""Preemption by card: pods are evicted for a pod where a node's totals fit and no card does, so that the scheduler evicts none.

Start with `card_preemptor.py`. Which pods of a node have to go is decided by `extender/preemption`.
"""
