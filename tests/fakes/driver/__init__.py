"""An NVIDIA driver without a GPU: what `/dev/nvidia*` does with memory, and programs that use it.

`server/` is the driver in C (`behaviour.c` is what it does, `fuse.c` how it is reached over FUSE), `driver.py` starts it in a test.
`kernel/` is the same behaviour as kernel modules, for virtual machines only; `modules.py` compiles them. `programs/` are the users of
both. What is assumed of the real driver is listed in docs/gpu-verification.md.
"""
