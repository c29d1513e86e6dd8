"""The demo as a newcomer runs it: a process of its own, read back from its API server."""
