"""What NVIDIA's GPU Operator creates in a cluster, as recorded files: README.md says where they come from."""
