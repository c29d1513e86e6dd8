"""`kmod`: limits that the kernel module in `shim/kmod` enforces, through /proc/cgpu_km.

`row.py` says when it is selected; `backend.py` ties it together: start there. `proc_client.py` is the only access to the
module's files, `preflight.py` finds what is missing to use them, `budget_owner.py` finds which processes a budget is for. Nothing
here decides how much a container may use.
"""
