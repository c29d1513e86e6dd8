"""The only access to NVIDIA's driver: what it says about the cards, behind a small Protocol, with a time-out on every call.

`driver.py` has the Protocol and its values, `nvml_driver.py` implements it with NVML, `session.py` makes the calls (they block),
and `timed_calls.py` keeps a hung driver from stopping other calls.
"""
