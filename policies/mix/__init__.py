"""The requests that the cluster usually gets, and what follows from them: typical requests, fragments, prices, pressure.

These are pure numbers, recomputed when the mix has changed; policies read the results and compute none. Read `request_mix.py` first.
"""
