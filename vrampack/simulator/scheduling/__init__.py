"""The parts of the embedded scheduler, independent of one another; `vrampack/simulator/scheduler.py` is the loop that uses them.

`settings`, `store_follower` (what it sees), `cache` and `resources` (what it counts), `filters` (its own filters),
`extender_client` (the calls), `scheduling_queue` (which pod is next), `pod_reporter` (what it writes on pods).
"""
