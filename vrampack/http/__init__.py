"""Parts that all our listeners share: a bound on their connections, and TLS from files.

No protocol, no route and no settings: those stand beside the listener, in `extender/http` or `vrampack/agent/status`.
Read `open_connections.py`.
"""
