"""The kubelet device plugin: registration, ListAndWatch, Allocate, GetPreferredAllocation.

Start with `device_plugin.py`. What PreStartContainer decides is in `admission`.
"""
