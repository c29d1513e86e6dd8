"""Back ends, their choice, cgroup paths, and the socket that the hook asks."""
