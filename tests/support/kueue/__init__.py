"""Kueue, built of its Go module and installed as its recipe says: a controller that gates pods until their queue has quota."""
