"""Unschedulable pods, and their activation when a node gains capacity.

Start with `activator.py`.
"""
