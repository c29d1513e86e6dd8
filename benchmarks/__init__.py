"""The numbers this project promises, measured: `make bench`.

Here lives what measures and what decides whether a figure is good enough. What is measured lives in the other rooms; what
must hold on every machine is a test. Read `benchmark_row.py`, then `table.py`, then one group.
"""
