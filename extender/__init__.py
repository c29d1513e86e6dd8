"""The service that kube-scheduler calls: filter, prioritize, bind and preempt over one in-memory ledger.

`app.py` wires everything together. `verbs.py` decides, `ledger.py` counts, `sync.py` keeps the ledger true,
`binding.py` sends the one Binding, `preemption.py` completes victims, `routes.py` speaks HTTP. One process, one
event loop, one writer: a ledger method never awaits. What goes where is decided in `policies/`; the API server is
reached through `vrampack/kube/` only.
"""
