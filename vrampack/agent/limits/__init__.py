"""Who holds a container to its limit: one contract, several back ends, chosen per node.

Read `contract.py` first, then `selection.py` (which back end, and why), then `hook_server.py` (the moment at which a limit is put
in force: the container's cgroup is there, its first process is not). Nothing here decides how much a container may use:
that is in the pod's record, and is handed in.
"""
