"""`vrampack config`: the files that people write, checked before a program reads them, and their JSON Schemas.

Start with `main.py`. How a file is read is in `vrampack/config`.
"""
