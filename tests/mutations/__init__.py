"""Breaks one line of the product at a time, as somebody might write it one day, and names the one test that must notice.

A green suite says little if nothing makes it red. Each row of `in_*.py` is a bug by which memory is given out twice, a container
gets another card or limit than its record says, a Binding is lost or repeated, a pod loses its place to one that has no right to it,
or a stranger is let in; `make mutations` runs them. Bugs that need an order of events are in `tests/simulation/bugs.py`. Read
`breaks.py` first.
"""
