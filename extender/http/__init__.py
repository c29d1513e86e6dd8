"""HTTP: the listeners, the protocol that answers a verb in one turn of the loop, the routes, and the admission webhook.

Start with `routes.py`. What a verb decides is in `scheduling` and `preemption`; nothing here counts units.
"""
