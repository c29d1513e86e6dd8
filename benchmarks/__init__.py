"""Measures the numbers that this project promises: `make bench`.

This package measures, and decides whether a figure is good enough. The measured code is in the other packages; what must hold
on every machine is a test. Read `benchmark_row.py`, then `table.py`, then one group.
"""
