"""What kubelet speaks: the device plugin interface v1beta1 and pod-resources v1, as far as the agent uses them.

The `.proto` files are our own, with the field numbers of https://github.com/kubernetes/kubelet (pkg/apis); the rest is
made of them by `python -m tests.agent.generated_stubs`; do not edit it.
"""
