"""Enforcing memory limits on this node: one contract, several back ends, one of them selected per node.

Read `contract.py` first, then `back_ends.py` (the table) and `selection.py` (which row, and why), then `enforcement.py`, which
both agents hold. `hook_server.py` is the moment at which a container's limit is put in force: its cgroup is there, its first
process is not. Nothing here decides how much a container may use, and nothing here knows pods: that is `workload.py`'s,
which `admission` and `host` implement. Only the table imports a back end.
"""
