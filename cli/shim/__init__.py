"""`vrampack shim`: what the library under libc holds its processes to, as the agent of a node says it."""
