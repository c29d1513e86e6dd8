"""`vrampack card` before an API server."""
