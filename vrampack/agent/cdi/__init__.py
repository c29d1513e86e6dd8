"""Just-in-time CDI: a container gets its card by a spec that is written when it is about to start, and deleted once it exists.

This package has the names and the specs, and detects when they are read. `admission/card_injection.py` decides which
container gets which card. Read `spec_publisher.py` first: it is the life of one spec.
"""
