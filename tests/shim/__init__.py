"""The C programs of `shim/`, built from source and tried from outside."""
