"""`vrampack card`: one card of a node, taken out of use by its operator and put back. Read `cordons.py` first."""
