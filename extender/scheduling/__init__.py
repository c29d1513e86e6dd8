"""Filter, prioritize and bind.

Start with `verbs.py`, then `binding.py`. What fits is `vrampack/cards/fit.py`; which card is best is `policies/`.
"""
