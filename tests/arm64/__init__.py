"""Suites of C programs, and the image, on arm64: compiled by a cross compiler and run by qemu-user.

`compilers` is first on PATH, so that the tests of the other folders build for arm64 without knowing it.
"""
