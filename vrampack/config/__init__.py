"""Reads the files that people write: strictly, once, with a fault that names its line and path.

The models themselves are in the packages whose settings they are. Read `strict.py`.
"""
