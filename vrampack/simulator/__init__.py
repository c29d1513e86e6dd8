"""An in-memory cluster that really speaks: what tests, the demo and what-if questions run against.

Here belongs whatever stands in for Kubernetes itself: the API server (`apiserver.py`, read it first) over a
store that knows no network (`store.py`), what each kind of object means to it, and the controllers that give
its pods a life (`workloads.py`, `kubelet.py`) and a place (`scheduler.py`, which asks a real extender).
`cluster.py` puts them together. Nothing here is a double with a script: a client cannot tell the
difference within the calls that `surface.py` lists. What "right" means is written once, in `tests/contract`, which
runs against the real API server too, and in recordings of a real scheduler.
"""
