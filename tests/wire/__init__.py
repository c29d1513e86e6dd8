"""What kube-scheduler sends and what it must be told, worked out twice: by the service and by a slow oracle.

`recorded/` holds real requests, `clusters.py` makes random clusters; `oracle.py` is the other opinion. Read it first.
"""
