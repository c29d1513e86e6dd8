"""The only access to the API server: list, watch, get, bind, events. Raw bytes in, values of `cards` out.

It uses the official client for credentials, TLS and most calls, but not its models: decoding whole objects costs
a hundred times as much as decoding the fields that we read. Every status is checked here, because the raw calls check none.
Bindings and watches have connections of their own, `direct_client.py`. Read `client.py` first, then `reflector.py`.
"""
