"""An in-memory cluster that really speaks: what tests, the demo and what-if questions run against.

Here belongs whatever stands in for Kubernetes itself: the API server (`apiserver.py`, read it first) over a
store that knows no network (`store.py`), and what each kind of object means to it. Nothing here decides where
a pod goes, and nothing here is a double with a script: a client cannot tell the difference within the calls
that `kube/` makes. What "right" means is written once, in `tests/contract`, which runs against the real API
server too.
"""
