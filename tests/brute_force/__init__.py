"""The whole extender in memory against brute force: every answer of its verbs, and every card at every Binding.

A seed draws a cluster with rules (`clusters.py`, `world.py`) and steps (`steps.py`), which `run.py` takes; the machinery is that of
tests/simulation. `checks.py` compares every answer with `judge.py`, which says what filter must answer: from the raw objects as
the extender has heard them, the slow way, with nothing of the product. Read `checks.py` first.
"""
