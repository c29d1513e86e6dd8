"""`vrampack limits` before a simulated agent."""
