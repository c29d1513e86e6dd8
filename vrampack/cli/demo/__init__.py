"""`vrampack demo`: the product's main job, shown without a cluster.

`main.py` has the flags, `scenario.py` the steps, `objects.py` the cluster they run on, `extender_process.py` the
extender as a separate process, `stages.py` the state of the API server at each step. Only the extender decides about
placement, and everything shown is read back from the API server.
"""
