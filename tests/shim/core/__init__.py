"""The core of the shim: what it decides, on scripts, on random traces, under threads and on malformed calls."""
