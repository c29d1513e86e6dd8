"""`vrampack certificates`: the admission webhook's certificate and its certificate authority. Read `main.py` first."""
