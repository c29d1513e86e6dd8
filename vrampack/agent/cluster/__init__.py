"""The agent's view of the API server: its own Node and the pods bound to it."""
