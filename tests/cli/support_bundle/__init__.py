"""`vrampack support-bundle` before an API server."""
