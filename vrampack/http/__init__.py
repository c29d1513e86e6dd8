"""Parts that all our listeners share: a bound on their connections, TLS from files, and the metrics of a page.

It has no protocol, routes or settings: those are beside the listener, in `extender/http` or `vrampack/agent/status`.
Read `open_connections.py`.
"""
