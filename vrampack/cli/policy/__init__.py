"""`vrampack policy`: which policy, profiles and rules are in force, and what they say of a pod or a request.

Read `main.py` first. What is explained comes from `vrampack/cli/explain`.
"""
