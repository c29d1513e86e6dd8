"""`vrampack certificates`: the certificate of the admission webhook, and its authority. Read `main.py` first."""
