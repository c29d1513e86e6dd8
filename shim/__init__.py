"""The C programs that hold a limit on a node. Python here is what makes their sources, or checks them."""
