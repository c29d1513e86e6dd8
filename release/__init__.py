"""A release: everything that a cluster without a registry or an index is installed from, made of one commit.

`__main__.py` is `make release`. `sources.py` exports the commit, `artifacts.py` makes the files of it, `sbom.py` lists
what is in the images, `signing.py` signs the checksums, `programs.py` builds syft and cosign. Nothing of the product is
here, and nothing here is installed. docs/releases.md says what each file is for.
"""
