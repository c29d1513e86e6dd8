"""`vrampack shim` before an agent that is played."""
