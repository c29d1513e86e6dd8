"""Enforcing memory limits on this node: one contract, several back ends, one of them selected per node.

Read `contract.py` first, then `back_ends.py` (the table) and `selection.py` (which row, and why), then `enforcement.py`, which
both agents use. `hook_server.py` puts a container's limit in force at the right moment: its cgroup exists, its first
process does not. Nothing here decides how much a container may use or knows about pods: that is behind `workload.py`, which
`admission` and `host` implement. Only the table imports a back end.
"""
