"""`vrampack limits`: shows the limits that module or library enforce, as the node's agent reports them; detaches the module."""
