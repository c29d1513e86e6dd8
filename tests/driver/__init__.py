"""NVIDIA's own driver in virtual machines, beside a simulated PCI function: what the simulated driver cannot prove.

    make driver-test                     all of it; python -m tests.driver -k opened, pytest's options, for a part

Releases 535 and 550 are built of Debian's packages of the open modules (nvidia_packages.py), and meet the libraries of the same
release. `fakepci` is the function; with its GSP, 535.261.03 opens /dev/nvidia0 and hands out memory of an 80 GiB card from its
own allocator, and makes channels. What it says of engines, interrupts and memory is invented, so nothing here computes: only what the driver does in
the kernel is real. docs/gpu-verification.md has what only a GPU shows.
"""
