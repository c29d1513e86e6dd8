"""A real etcd, API server, controller manager and scheduler on loopback."""
