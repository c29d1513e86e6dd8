"""What ships in `manifests/`, read without kubectl: the rendered files match their sources, and the sources are safe.

Start with `kustomization.py`, the reader. What only an API server can check is in `tests/e2e/test_manifests.py`.
"""
