"""The extender's state: the ledger, what keeps it in step with the API server, and what is kept for pods that are not bound yet.

Start with `ledger.py`; `sync.py` feeds it from the API server. Nothing here decides where a pod goes.
"""
