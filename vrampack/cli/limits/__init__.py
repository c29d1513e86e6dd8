"""`vrampack limits`: what module or library hold processes to, as the agent of a node says it, and the module taken off the driver."""
