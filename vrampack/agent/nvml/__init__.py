"""The only access to NVIDIA's driver: what it says about the cards, behind a small Protocol, with a time-out on every call.

`driver.py` is the Protocol and its values, `library.py` keeps it with NVML, `reading.py` makes the calls (they block), and
`calls.py` keeps a hung driver from stopping other calls.
"""
