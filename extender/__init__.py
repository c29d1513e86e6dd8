"""The service that kube-scheduler calls: filter, prioritize and bind over one in-memory ledger.

`app.py` wires everything together. `verbs.py` decides, `ledger.py` counts, `sync.py` keeps the ledger true,
`binding.py` sends the one Binding, `routes.py` speaks HTTP. One process, one event loop, one writer: a ledger
method never awaits. What goes where is decided in `policies/`; the API server is reached through `kube/` only.
"""
