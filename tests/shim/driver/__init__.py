"""The fake driver by itself: it does what docs/gpu-verification.md says of the real one."""
