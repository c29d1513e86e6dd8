"""An in-memory cluster that really speaks: what tests, the demo and what-if questions run against.

Here belongs whatever stands in for Kubernetes itself: the API server (`apiserver.py`, read it first) over a
store that knows no network (`object_store.py`), what each kind of object means to it, and the controllers that
run its pods (`workload_controller.py`, `kubelet.py`) and place them (`scheduler.py`, which asks a real extender).
`embedded_cluster.py` puts them together. Nothing here is a scripted double: a client cannot tell the
difference within the calls that `endpoints.py` lists. What is correct is written once, in `tests/contract`, which
runs against the real API server too, and in recordings of a real scheduler.
"""
