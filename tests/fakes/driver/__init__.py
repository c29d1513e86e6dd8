"""An NVIDIA driver without a GPU: what `/dev/nvidia*` does with memory, served over FUSE, and programs that use it.

`server/` is the driver in C (`behaviour.c` is what it does, `fuse.c` how it is reached), `programs/` are its users, `driver.py` starts
it in a test. What it assumes of the real one is listed in docs/gpu-verification.md.
"""
