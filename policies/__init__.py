"""Where a pod should go: one pure module per policy, and the engine that asks them.

A policy scores nodes that already fit; it uses no clock, no network and no other policy, and it never caches.
All caching is in `engine/`. What fits at all is `vrampack/cards/fit.py`. Read `policy.py` first, then `binpack.py`.
A new policy is one module here and one row in `registry.py`.
"""
