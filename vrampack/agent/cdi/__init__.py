"""Just-in-time CDI: a container gets its card by a spec that is written when it is about to start, and deleted once it exists.

Here are names, specs and who reads them. Which container gets which card is decided in `admission/card_injection.py`.
Read `spec_publisher.py` first: it is the life of one spec.
"""
