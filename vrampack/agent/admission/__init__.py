"""The fence: may this container start, and with which cards?

Start with `fence.py`, then `prestart.py`. `pod_workload.py` tells `limits` which limits pods ought to have; how they are
enforced is decided there.
"""
