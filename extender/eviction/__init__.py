"""Evicts pods that the agent of their node refuses. The victims of a preemption are kube-scheduler's choice, see `preemption`.

Read `refused_pod_evictor.py` first.
"""
