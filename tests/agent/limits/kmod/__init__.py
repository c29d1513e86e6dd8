"""The back end `kmod`, before a simulated module (`tests/support/simulated_kmod.py`). The real one runs in virtual machines: `tests/shim/kmod`."""
