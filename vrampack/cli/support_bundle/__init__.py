"""`vrampack support-bundle`: what a maintainer needs to help, in one file without secrets. Read `collection.py` first.

Only fields that this package or `simulator/replay/kept_fields.py` names are written; free text goes through `redaction.py`.
"""
