"""The service that kube-scheduler calls: filter, prioritize, bind and preempt over one in-memory ledger.

`app.py` and `components.py` wire everything together. Three paths lead through the packages:

    filter     http/protocol -> http/timed_verbs -> scheduling/verbs -> policies/engine -> a policy
    bind       http/protocol -> http/timed_verbs -> scheduling/verbs -> scheduling/binding -> the API server, state/ledger
    pod event  vrampack/kube/reflector -> state/sync -> state/ledger -> components.LedgerReactions

One process, one event loop, one writer: a ledger method never awaits. `policies/` decides which cards a pod gets; the API
server is reached through `vrampack/kube/` only.
"""
