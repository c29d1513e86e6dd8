"""`vrampack explain pod`: where a pod is, or what it lacks on every card, and the next step.

`main.py` has the flags; `cluster.py` and `pod.py` read what the API server says, `evaluation.py` asks `vrampack.cards.fit`
and the policies as filter does, `explanations.py` builds the one value (`schema.py`) that `text.py` and the JSON form print.
`actions.py` is the next step for programs, `next_step.py` and `pending_step.py` say it in words. `workload.py` finds the pods of a workload.
"""
