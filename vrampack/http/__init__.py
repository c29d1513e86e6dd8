"""Parts that all our listeners share: a bound on their connections, and TLS from files.

It has no protocol, routes or settings: those are beside the listener, in `extender/http` or `vrampack/agent/status`.
Read `open_connections.py`.
"""
