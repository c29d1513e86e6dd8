"""`vrampack card`: takes one card of a node out of use and puts it back. Read `cordons.py` first."""
