"""The bodies of the verbs: decodes what kube-scheduler sends and encodes the answers.

Start with `args.py`. Nothing here knows the ledger or a socket.
"""
