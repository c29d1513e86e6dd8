"""The container image: how it is built from the Dockerfile, made small and looked into. Nothing of the program is here.

`build` makes it, `trim.py` runs inside the build, `archive.py` reads the result and `container.py` runs it.
"""
