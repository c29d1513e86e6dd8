"""The agent's HTTP pages: metrics, health and `/limits`.

Start with `http.py`.
"""
