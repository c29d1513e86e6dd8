"""The freestanding core in C, and the facts its layouts are made of.

`layouts.csv` is the one source: `generate` makes `layouts.h` of it, `check_headers` compares it with NVIDIA's own headers.
"""
