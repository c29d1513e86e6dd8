"""Karpenter, built of its Go module with the provider that makes Node objects and no machines: it removes nodes as the real one does."""
