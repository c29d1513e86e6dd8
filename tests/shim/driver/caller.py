"""A program that talks to the driver, in Python: every structure can be filled in by hand, rightly or wrongly."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Sequence
from ctypes import Array, Structure, addressof, sizeof
from pathlib import Path
from types import TracebackType
from typing import Self, TypeVar

from tests.shim.driver import parameters as nv

_LIBC = ctypes.CDLL(None, use_errno=True)
Body = TypeVar("Body", bound=Structure)
READ_WRITE = 3 << 30


def ioctl_number(escape: int, size: int) -> int:
    """As `_IOWR('F', escape, size)`."""
    return READ_WRITE | size << 16 | ord("F") << 8 | escape


def call_ioctl(file: int, command: int, address: int) -> int:
    """0, or the errno."""
    done: int = _LIBC.ioctl(file, ctypes.c_ulong(command), ctypes.c_void_p(address))
    return 0 if done == 0 else ctypes.get_errno()


class DriverCaller:
    """One open control file with a client on it; `device` and `subdevice` of one card below."""

    def __init__(self, control: Path, *, card: int = 0) -> None:
        self.file = os.open(control, os.O_RDWR | os.O_CLOEXEC)
        self.client = self.make(nv.CLIENT, root=0, parent=0)
        self.device = self.make(nv.DEVICE, nv.Device(device_id=card), parent=self.client)
        self.subdevice = self.make(nv.SUBDEVICE, parent=self.device)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self.file)

    def call(self, escape: int, body: Structure, *, size: int | None = None) -> int:
        """0, or the errno."""
        return call_ioctl(self.file, ioctl_number(escape, sizeof(body) if size is None else size), addressof(body))

    def file_call(self, escape: int, bodies: Array[Body]) -> None:
        """The same with several structures side by side; the call must succeed."""
        error = call_ioctl(self.file, ioctl_number(escape, sizeof(bodies)), addressof(bodies))
        if error:
            raise OSError(error, os.strerror(error))

    def call_ok(self, escape: int, body: Body) -> Body:
        """The same for a call that must succeed, with any status."""
        error = self.call(escape, body)
        if error:
            raise OSError(error, os.strerror(error))
        return body

    def try_make(
        self,
        class_number: int,
        params: Structure | None = None,
        *,
        root: int | None = None,
        parent: int | None = None,
        handle: int = 0,
    ) -> nv.Alloc:
        return self.call_ok(
            nv.ALLOC,
            nv.Alloc(
                root=self.client if root is None else root,
                parent=self.device if parent is None else parent,
                new=handle,
                class_number=class_number,
                params=addressof(params) if params is not None else 0,
            ),
        )

    def make(
        self, class_number: int, params: Structure | None = None, *, root: int | None = None, parent: int | None = None
    ) -> int:
        """The handle of the new object, which must have been made."""
        made = self.try_make(class_number, params, root=root, parent=parent)
        if made.status != nv.OK:
            raise ValueError(f"class {class_number:#x}: status {made.status:#x}")
        return int(made.new)

    def allocate_memory(self, size: int, *, attr: int = 0) -> int:
        return self.make(nv.VIDEO_MEMORY, nv.Memory(size=size, attr=attr))

    def free_object(self, handle: int) -> int:
        return int(self.call_ok(nv.FREE, nv.Free(root=self.client, old=handle)).status)

    def dup(self, source: DriverCaller, handle: int) -> nv.Dup:
        return self.call_ok(
            nv.DUP, nv.Dup(client=self.client, parent=self.device, from_client=source.client, from_object=handle)
        )

    def control(
        self, command: int, params: Structure | None, *, handle: int | None = None, size: int | None = None
    ) -> int:
        """The status."""
        address = addressof(params) if params is not None else 0
        own_size = sizeof(params) if params is not None else 0
        return self.control_at(command, address, own_size if size is None else size, handle=handle)

    def control_at(self, command: int, address: int, size: int, *, handle: int | None = None) -> int:
        """The same with parameters wherever they are."""
        body = nv.Control(
            client=self.client,
            object=self.subdevice if handle is None else handle,
            command=command,
            params=address,
            params_size=size,
        )
        return int(self.call_ok(nv.CONTROL, body).status)

    def report(self, indices: Sequence[int]) -> list[int]:
        """FB_GET_INFO_V2 of 580, in KiB."""
        asked = nv.FbListV2(count=len(indices))
        for place, index in enumerate(indices):
            asked.entries[place].index = index
        status = self.control(nv.FB_INFO_V2, asked)
        if status != nv.OK:
            raise ValueError(f"FB_GET_INFO_V2: status {status:#x}")
        return [int(asked.entries[place].kib) for place in range(len(indices))]
