"""A simulated kubelet with real APIs: device plugins and pod-resources over gRPC on unix sockets in a folder.

It simulates the device manager of kubelet 1.36 as in its source, odd corners included, and leaves out everything
around it: no containers run, no time passes by itself, and what kubelet retries later (a refused start, pods after
a restart) is a call of the test. Not simulated: topology hints, envFrom, the node's general predicates. Start with
`kubelet.py`.
"""
