"""The kernel module in virtual machines (tests/machine): stock kernels, and one that looks for mistakes."""
