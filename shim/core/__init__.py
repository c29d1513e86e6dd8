"""The freestanding core in C, and the facts from which its layouts are generated.

`layouts.csv` is the one source: `layout_generator` makes `ioctls.h` and `layouts.h` from it, `header_check` compares it with NVIDIA's own headers.
"""
