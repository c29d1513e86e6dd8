"""A simulated machine with NVIDIA cards: a `libnvidia-ml.so.1` of ours in C, and a file that says what it answers.

`build.py` compiles it, `machine.py` writes the file, `profiles.py` has machines as they are sold. The library is loaded
by any program that loads NVIDIA's, by `LD_LIBRARY_PATH` or by a mount; `stub/state.h` has the form of the file.
"""
