"""What ships in `manifests/`, read without kubectl: what is rendered is what is written, and what is written is safe.

Start with `kustomization.py`, the reader. What only an API server can say is in `tests/e2e/test_manifests.py`.
"""
