"""Recorded calls of a real kube-scheduler, and what plays them to another one."""
