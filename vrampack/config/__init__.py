"""Reads the files that people write: strictly, once, with faults that name line and path.

The models are in the packages to which the settings belong. Read `strict.py`.
"""
