"""Where a pod should go: one pure module per policy, and the engine that asks them.

A policy ranks nodes that already fit; it sees no clock, no network and no other policy, and it never caches.
All caching is in `engine.py`. What fits at all is `vrampack/cards/fit.py`. Read `policy.py` first, then `binpack.py`.
"""
