"""The freestanding core in C, and the facts its layouts are made of.

`layouts.csv` is the one source: `layout_generator` makes `ioctls.h` and `layouts.h` of it, `header_check` compares it with NVIDIA's own headers.
"""
