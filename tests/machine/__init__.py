"""Virtual machines for the kernel module's tests: stock kernels, a debug kernel that looks for mistakes, and QEMU without KVM.

Nothing is ever installed or loaded on the machine that runs the tests. Start with `machine.py`; `kernels.py` says where
the kernels come from, `guest/` is the first process of a machine.
"""
