"""`vrampack demo`: the product's main job, shown without a cluster.

`main.py` has the flags, `scenario.py` the steps, `objects.py` the cluster they run on, `extender_process.py` the
extender as a process of its own, `stages.py` the state of the API server at each step. Nothing here decides anything
about placement: the extender does, and everything shown is read back from the API server.
"""
