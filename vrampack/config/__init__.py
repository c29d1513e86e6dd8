"""How the files that people write are read: strictly, once, with a fault that names its line and path.

The models themselves stand in the rooms whose settings they are. Read `strict.py`.
"""
