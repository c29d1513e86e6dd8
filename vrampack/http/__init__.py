"""What every listener of ours is made of, whatever serves it: which connections stay when too many come, and TLS from files.

No protocol, no route and no settings: those stand beside the listener, in `extender/http` or `vrampack/agent/status`.
Read `open_connections.py`.
"""
