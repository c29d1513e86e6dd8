"""Breaks one line of the product at a time, as somebody might write it one day, and names the one test that must notice.

A green suite says little if nothing makes it red. Each row of `in_*.py` is a bug that would hurt an operator;
`make mutations` runs them. Bugs that need an order of events are in `tests/simulation/bugs.py`. Read `breaks.py` first.
"""
