"""What the extender knows: the ledger, how it is kept true, and what is kept for pods that are not bound yet.

Start with `ledger.py`; `sync.py` feeds it from the API server. Nothing here decides where a pod goes.
"""
