"""An in-memory cluster with real protocols, for tests, the demo and what-if questions.

This package has everything that stands in for Kubernetes itself: the API server (`apiserver.py`, read it first) over a
store that knows no network (`object_store.py`), the rules for each kind of object, and the controllers that
run its pods (`workload_controller.py`, `kubelet.py`) and place them (`scheduler.py`, which asks a real extender).
`embedded_cluster.py` wires them together. Nothing here is scripted: a client cannot tell the difference within the calls
that `endpoints.py` lists. `tests/contract`, which also runs against the real API server, and recordings of a real scheduler
define what is correct.
"""
