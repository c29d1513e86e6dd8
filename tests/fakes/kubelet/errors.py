"""Kubelet's error messages about devices, word for word."""

from __future__ import annotations

import grpc


class DeviceError(Exception):
    """The text is kubelet's own."""


class KilledError(Exception):
    """kubelet was killed during the operation, which is neither done nor refused; the restarted kubelet repeats it."""


def describe_error(error: grpc.aio.AioRpcError) -> str:
    """A failed call as grpc in Go prints it: kubelet's messages carry this text."""
    code = error.code()
    name = "Canceled" if code is grpc.StatusCode.CANCELLED else code.name.title().replace("_", "")
    is_late = code is grpc.StatusCode.DEADLINE_EXCEEDED
    return f"rpc error: code = {name} desc = {'context deadline exceeded' if is_late else error.details()}"
