"""The extender's own code under every order of answers, events, crashes and time that a seed draws.

A seed is a list of steps made beforehand (`steps.py`); `run.py` runs it on a `World` and checks `invariants.py` after
every step. Nothing here has a network, a thread or a clock: the same steps give the same run, so that a failure can be
run again and shortened. Read `world.py` first, then `steps.py`.
"""
