"""The chart and what is rendered from it: start with `rendering.py`. `python -m tests.support.chart` is `make render`."""
