"""`vrampack limits` before an agent that is played."""
