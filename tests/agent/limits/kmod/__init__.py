"""The back end `kmod`, before a module that is played (`played.py`). The real one runs in virtual machines: `tests/shim/kmod`."""
