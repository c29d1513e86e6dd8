"""One line of the product broken at a time, as somebody might write it one day, and the one test that must notice.

A green suite says little if nothing makes it red. Each row of `in_*.py` is a lie that would hurt whoever runs this; the
runs are `make mutations`. Bugs that need an order of events are in `tests/simulation/bugs.py`. Read `breaks.py` first.
"""
