"""Recorded calls of a real kube-scheduler, and the player that runs the same scenarios on another one."""
