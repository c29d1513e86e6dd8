"""The only door to the API server: list, watch, get, bind, events. Raw bytes in, values of `cards` out.

The official client is used for credentials, TLS and connections, never for its models: decoding whole objects
costs a hundred times what we read of them. Every status is checked here, because the raw calls check none.
Read `client.py` first, then `reflector.py`.
"""
