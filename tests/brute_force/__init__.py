"""The whole extender in memory against brute force: every answer of its verbs, and every card at every Binding.

A seed draws a cluster, rules and steps (`clusters.py`, `world.py`); the machinery is that of tests/simulation. `judge.py` says
what filter must answer: from the raw objects as the extender has heard them, the slow way, with nothing of the product.
"""
