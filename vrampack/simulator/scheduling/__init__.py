"""The parts of the embedded scheduler, each without the others; `vrampack/simulator/scheduler.py` is the loop that uses them.

`settings` (what it is told), `sync` (what it sees), `cluster` and `resources` (what it counts), `filters` (its own no),
`extender` (the calls), `queue` (whose turn it is), `report` (what it writes on pods).
"""
