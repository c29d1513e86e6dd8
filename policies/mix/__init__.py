"""What the cluster is usually asked for, and what follows from it: typical requests, fragments, prices, pressure.

Pure numbers, recomputed when the mix has changed; policies read the results and compute none. Read `request_mix.py` first.
"""
