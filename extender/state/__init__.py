"""The extender's state: the ledger, its synchronization with the API server, and the places kept for unbound pods.

Start with `ledger.py`; `sync.py` feeds it from the API server. Nothing here decides where a pod goes, but
`nominator.py` chooses the cards that are kept for a nominated one.
"""
