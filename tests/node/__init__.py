"""A whole node in namespaces of its own, with the product installed as its install page says: `make e2e-node`.

etcd, the control plane, kubelet, containerd and runc are real; the image comes from the shipped Dockerfile, the manifests
are applied unedited. Only the driver is simulated: containers find a library of ours where NVML would be. `python -m
tests.node` prepares, enters the namespaces, runs the tests there and compares the machine before and after; arguments of
pytest may follow, or stand in `make e2e-node TESTS="-x tests/node/test_install.py"`. Logs of the last run lie in
`build/node/logs`, in a folder for each part of the run and each release of containerd. Start with `node.py`.
"""
