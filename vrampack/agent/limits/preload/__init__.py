"""`preload`: a library under libc asks the agent before each allocation. It is cooperative, and documented as such.

The library is `shim/preload`; the messages are in `shim/preload/protocol.h` and `wire.py`. Read `usage_ledger.py` first (what
each process holds), then `decisions.py` (the answer to a question), then `server.py` (turns and messages)
and `known_processes.py` (lives of processes).
By `journal.py` a restarted agent still knows a process that sends nothing. `row.py` says when it is selected.
"""
