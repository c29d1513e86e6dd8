"""`vrampack demo`: the product's main job, shown without a cluster.

`main.py` has the flags, `story.py` what is shown, `objects.py` the cluster that it is shown on, `service.py` the
extender as a process of its own, `reading.py` what the API server says at each step. Nothing here decides anything
about placement: the extender does, and everything shown is read back from the API server.
"""
