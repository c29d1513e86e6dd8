"""Checks from the outside whether a cluster keeps the promises.

It is a second implementation of the contract: from raw API objects and the transcript of bind calls it checks that no card is
over (I1), that every bound pod has one valid card set equal to its request (I2), that bind said yes if and only if the API
shows it (I4) and that unbound pods carry no record (I6); `ledgers.py` compares what an extender shows with a recount (I3).
It is worth something only because it shares no code with what it judges: the standard library, nothing of the project. Read
`audit.py` first; `python -m tests.auditor --help` is its command.
"""
