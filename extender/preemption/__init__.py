"""Preempt: whether the victims kube-scheduler proposes free a card, and which ones to add when they do not.

Start with `preempt.py`.
"""
