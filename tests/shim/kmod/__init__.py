"""The kernel module in virtual machines (tests/machine): stock kernels, and a debug kernel."""
