"""`vrampack policy`: which policy, profiles and rules are in force, and how they decide about a pod or a request.

Read `main.py` first. The explanation comes from `vrampack/cli/explain`.
"""
