"""`kmod`: limits that the kernel module in `shim/kmod` holds, told through /proc/cgpu_km.

`nodes.py` is the one door to those files, `preflight.py` says what is missing to use them, `identity.py` whose files the
module is to manage, `backend.py` puts it together. Nothing here decides how much a container may use: that is the
pod's record, or the environment of a host's container. Start with `backend.py`.
"""
