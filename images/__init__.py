"""The container image: how it is built from the Dockerfile, trimmed and inspected. Nothing of the program is here.

`build` makes it, `environment_trim.py` runs inside the build, `archive.py` reads the result and `container.py` runs it.
"""
