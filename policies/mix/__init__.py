"""The requests that the cluster usually gets, and what follows from them: typical requests, fragments, prices, pressure.

These are pure numbers, recomputed when the mix has changed; policies only read the results. Read `request_mix.py` first.
"""
