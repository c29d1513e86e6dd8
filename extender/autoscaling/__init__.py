"""Keeps node autoscalers, which count units and not cards, from removing nodes that are needed, and makes them add those that are missing.

Start with `stranded_nodes.py` and `placeholders.py`.
"""
