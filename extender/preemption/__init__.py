"""Preempt: whether the victims that kube-scheduler proposes free a card, and which pods to add when they do not.

Start with `preempt.py`.
"""
