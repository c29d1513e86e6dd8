"""The embedded cluster's own tests: the store alone, and the faults only the embedded server can act out.

What its API answers is not repeated here: tests/contract covers that, on both servers.
"""
