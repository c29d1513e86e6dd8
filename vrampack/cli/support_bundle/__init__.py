"""`vrampack support-bundle`: what a maintainer needs to help, in one file without secrets. Read `collection.py` first.

Only fields that are named here or in `simulator/replay/trimming.py` are written; free text goes through `redaction.py`.
"""
