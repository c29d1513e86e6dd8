"""A kubelet that really speaks: device plugins and pod-resources over gRPC on unix sockets in a folder.

It simulates the device manager of kubelet 1.36 as its source has it, odd corners included, and leaves out what stands
around it: no containers run, no time passes by itself, and what kubelet does again later (a refused start, pods after
a restart) is a call of the test. Not simulated: topology hints, envFrom, the node's general predicates. Start with
`kubelet.py`.
"""
