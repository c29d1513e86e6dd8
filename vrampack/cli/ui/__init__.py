"""`vrampack ui`: pages for one reader on one machine. `app.py` has the routes, `access.py` decides who may read them.

Figures come from `cli/explain` and `vrampack/cards`, as in the other commands; this package itself only computes what a
reader may not see (`held_elsewhere.py`).
"""
