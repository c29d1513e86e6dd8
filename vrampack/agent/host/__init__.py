"""The agent of a host without Kubernetes, where the environment of a container sets its limit.

Start with `agent.py`.
"""
