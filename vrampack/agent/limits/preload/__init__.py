"""`preload`: a library under libc asks the agent before each allocation; cooperative, and called so.

The library is `shim/preload`; what both say is in `shim/preload/protocol.h` and `wire.py`. Read `ledger.py` first (what
each process holds), then `decisions.py` (what a question comes to), then `server.py` (sockets and lives of processes).
`journal.py` is why a restarted agent still knows a process that has nothing to say.
"""
