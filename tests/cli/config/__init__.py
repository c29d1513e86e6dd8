"""`vrampack config`."""
