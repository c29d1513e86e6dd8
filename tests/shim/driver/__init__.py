"""The fake driver by itself: what it does is what docs/gpu-verification.md says the real one does."""
