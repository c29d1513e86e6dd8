"""`vrampack limits`: the limits that module or library enforce, as a node's agent reports them; and detaching the module."""
