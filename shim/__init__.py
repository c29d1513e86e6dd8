"""The C programs that enforce limits on a node. The Python here generates their sources, or checks them."""
