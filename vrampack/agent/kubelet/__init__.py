"""kubelet's gRPC interfaces: the device plugin interface v1beta1 and pod-resources v1, as far as the agent uses them.

The `.proto` files are our own, with the field numbers of https://github.com/kubernetes/kubelet (pkg/apis).
`python -m tests.agent.generated_stubs` generates the rest from them; do not edit it.
"""
