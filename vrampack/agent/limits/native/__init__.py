"""The back end that sets the NVIDIA driver's own limit on a container's cgroup."""
