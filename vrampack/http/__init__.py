"""Parts that all our listeners share: their sockets, a bound on their connections, TLS from files, and metrics.

It has no protocol, routes or settings: those are beside the listener, in `extender/http` or `vrampack/agent/status`.
Read `open_connections.py`.
"""
