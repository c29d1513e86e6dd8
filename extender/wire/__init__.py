"""The bodies of the verbs: decoding what kube-scheduler sends, encoding what it is answered.

Start with `args.py`. Nothing here knows the ledger or a socket.
"""
