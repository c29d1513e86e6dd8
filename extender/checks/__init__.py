"""Checks of what surrounds the extender: kube-scheduler's configuration and the cluster's device classes."""
