"""The fence: may this container start, and with which cards?

Start with `fence.py`, then `prestart.py`. How a limit is enforced is in `limits`.
"""
