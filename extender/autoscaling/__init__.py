"""Keeps node autoscalers, which count a node's units and not its cards, from removing nodes whose pods would find no card elsewhere.

Start with `stranded_nodes.py`.
"""
