"""The fence: may this container start, and with which cards?

Start with `fence.py`, then `prestart.py`. `pod_workload.py` tells `limits` which limits pods should have; `limits` decides
how to enforce them.
"""
