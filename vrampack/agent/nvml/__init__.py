"""The only door to NVIDIA's driver: what it says of the cards, behind a small Protocol, with a time-out on every call.

`driver.py` is the Protocol and its values, `library.py` keeps it with NVML, `reading.py` makes the calls (they block), and
`calls.py` is what keeps a driver that hangs from stopping anybody.
"""
