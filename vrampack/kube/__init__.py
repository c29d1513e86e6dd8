"""The only access to the API server: list, watch, get, bind, events. Raw bytes in, values of `cards` out.

It uses the official client to load credentials. Its models are not used: decoding whole objects costs a hundred times as much as
decoding the fields that we read. Connections are `http_client.py`'s; every status is checked in `client.py`. Read `client.py`
first, then `reflector.py`.
"""
