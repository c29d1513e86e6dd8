"""The chart and what is made of it: start with `rendering.py`. `python -m tests.support.chart` is `make render`."""
