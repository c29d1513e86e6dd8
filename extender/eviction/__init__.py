"""Evicting pods that the agents of their nodes refuse. Which pods a preemption takes is kube-scheduler's work, see `preemption`.

Read `refused_pod_evictor.py` first.
"""
