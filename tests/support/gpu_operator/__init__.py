"""What NVIDIA's GPU Operator makes in a cluster, as files of its own: README.md says where they come from."""
