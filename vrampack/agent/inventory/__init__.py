"""The cards of the node: discovery, health, and what is advertised to kubelet and on the Node.

Start with `discovery.py`.
"""
