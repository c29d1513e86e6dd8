"""What only a GPU can show of the library: `python -m tests.gpu`, on a machine with one. Start at `points`, then `machine`.

Never a kernel module on a borrowed machine. What was seen goes into docs/gpu-results, and docs/gpu-verification.md names
the points.
"""
