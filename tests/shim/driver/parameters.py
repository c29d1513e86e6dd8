"""The driver's parameters as ctypes structures: the same facts written down a third time, for the newest shapes."""

from __future__ import annotations

from ctypes import Structure, c_int16, c_int32, c_uint8, c_uint16, c_uint32, c_uint64

CARD_INFO, REGISTER_FD, XFER, DMABUF = 200, 201, 211, 217
ALLOC_MEMORY, FREE, CONTROL, ALLOC, DUP, SHARE, VID_HEAP = 0x27, 0x29, 0x2A, 0x2B, 0x34, 0x35, 0x4A
UVM_INITIALIZE, UVM_MAP_EXTERNAL, UVM_FREE = 0x30000001, 33, 34

CLIENT, DEVICE, SUBDEVICE = 0x41, 0x80, 0x2080
VIDEO_MEMORY, SYSTEM_MEMORY, VIRTUAL_MEMORY = 0x40, 0x3E, 0x50A0

OK, ILLEGAL_ACTION, DUPLICATE, NOT_PERMITTED, BAD_ADDRESS, BAD_ARGUMENT = 0, 0x16, 0x19, 0x1B, 0x1E, 0x1F
BAD_CLASS, BAD_CLIENT, BAD_DEVICE, BAD_PARENT, BAD_OWNER, NO_MEMORY, NOT_SUPPORTED, NO_SUCH_OBJECT = (
    0x22,
    0x23,
    0x26,
    0x36,
    0x39,
    0x51,
    0x56,
    0x57,
)

OWNER = 0x56524D50
FLAG_VIRTUAL, FLAG_HANDLE_PROVIDED = 0x80000, 0x4000
SMALL_PAGES, BIG_PAGES, HUGE_PAGES = 1 << 23, 2 << 23, 3 << 23
LOCATION_PCI, LOCATION_ANY = 1 << 25, 3 << 25

EXPORT_ONE, IMPORT_ONE, EXPORT_MANY, IMPORT_MANY = 0x3D05, 0x3D06, 0x3D0B, 0x3D0C
BAD_HANDLE, BAD_PARAMETER, OUT_OF_RANGE, IN_USE = 0x33, 0x3B, 0x5B, 0x63
FB_INFO, FB_INFO_V2, ATTACHED_IDS, ID_INFO, GID_INFO = 0x20801301, 0x20801303, 0x201, 0x205, 0x2080014A
BAR1, RAM, TOTAL_RAM, HEAP, MAPPABLE, LARGEST_FREE, RESERVED, HEAP_FREE, USABLE = (
    0x05,
    7,
    8,
    9,
    10,
    0x12,
    0x15,
    0x16,
    0x20,
)


class Alloc(Structure):
    """The short form of RM_ALLOC, from 535 on."""

    _fields_ = [
        ("root", c_uint32), ("parent", c_uint32), ("new", c_uint32), ("class_number", c_uint32),
        ("params", c_uint64), ("params_size", c_uint32), ("status", c_uint32),
    ]  # fmt: skip


class OwnedMemory(Structure):
    """The driver wants an owner of any number but 0, as CUDA's memory has one (D36)."""

    def __init__(self, *values: object, **fields: object) -> None:
        super().__init__(*values, **({"owner": OWNER} | fields))


class Memory(OwnedMemory):
    _fields_ = [
        ("owner", c_uint32), ("type", c_uint32), ("flags", c_uint32), ("width", c_uint32), ("height", c_uint32),
        ("pitch", c_int32), ("attr", c_uint32), ("attr2", c_uint32), ("format", c_uint32), ("compression", c_uint32),
        ("zcull", c_uint32), ("range_low", c_uint64), ("range_high", c_uint64), ("size", c_uint64),
        ("alignment", c_uint64), ("offset", c_uint64), ("limit", c_uint64), ("address", c_uint64),
        ("ctag", c_uint32), ("va_space", c_uint32), ("internal", c_uint32), ("tag", c_uint32), ("numa", c_int32),
    ]  # fmt: skip


class HeapSize(OwnedMemory):
    _fields_ = [
        ("owner", c_uint32), ("memory", c_uint32), ("type", c_uint32), ("flags", c_uint32), ("attr", c_uint32),
        ("format", c_uint32), ("compression", c_uint32), ("zcull", c_uint32), ("stride", c_uint32),
        ("width", c_uint32), ("height", c_uint32), ("size", c_uint64), ("alignment", c_uint64),
        ("offset", c_uint64), ("limit", c_uint64), ("address", c_uint64), ("begin", c_uint64), ("end", c_uint64),
        ("attr2", c_uint32), ("ctag", c_uint32), ("numa", c_int32), ("rest", c_uint32 * 7),
    ]  # fmt: skip


class HeapRange(OwnedMemory):
    _fields_ = [
        ("owner", c_uint32), ("memory", c_uint32), ("type", c_uint32), ("flags", c_uint32), ("attr", c_uint32),
        ("format", c_uint32), ("compression", c_uint32), ("zcull", c_uint32), ("stride", c_uint32),
        ("size", c_uint64), ("alignment", c_uint64), ("offset", c_uint64), ("limit", c_uint64),
        ("begin", c_uint64), ("end", c_uint64), ("address", c_uint64), ("attr2", c_uint32), ("rest", c_uint32 * 11),
    ]  # fmt: skip


class HeapPitch(OwnedMemory):
    _fields_ = [
        ("owner", c_uint32), ("memory", c_uint32), ("type", c_uint32), ("flags", c_uint32), ("height", c_uint32),
        ("pitch", c_int32), ("attr", c_uint32), ("width", c_uint32), ("format", c_uint32),
        ("compression", c_uint32), ("zcull", c_uint32), ("stride", c_uint32), ("size", c_uint64),
        ("alignment", c_uint64), ("offset", c_uint64), ("limit", c_uint64), ("address", c_uint64),
        ("begin", c_uint64), ("end", c_uint64), ("attr2", c_uint32), ("rest", c_uint32 * 9),
    ]  # fmt: skip


class HeapSurface(OwnedMemory):
    """Up to 525."""

    _fields_ = [
        ("owner", c_uint32), ("memory", c_uint32), ("type", c_uint32), ("flags", c_uint32), ("depth", c_uint32),
        ("width", c_uint32), ("height", c_uint32), ("attr", c_uint32), ("format", c_uint32),
        ("compression", c_uint32), ("zcull", c_uint32), ("stride", c_uint32), ("size", c_uint64),
        ("alignment", c_uint64), ("offset", c_uint64), ("limit", c_uint64), ("address", c_uint64),
        ("begin", c_uint64), ("end", c_uint64), ("attr2", c_uint32), ("rest", c_uint32 * 9),
    ]  # fmt: skip


class HeapFree(Structure):
    _fields_ = [("owner", c_uint32), ("memory", c_uint32), ("flags", c_uint32), ("rest", c_uint32 * 33)]


class HeapReport(Structure):
    _fields_ = [
        ("attr", c_uint32), ("offset", c_uint64), ("size", c_uint64), ("base", c_uint64), ("rest", c_uint64 * 14),
    ]  # fmt: skip


class HeapHead(Structure):
    _fields_ = [
        ("root", c_uint32), ("parent", c_uint32), ("function", c_uint32), ("va_space", c_uint32), ("ivc", c_int16),
        ("status", c_uint32), ("total", c_uint64), ("free", c_uint64),
    ]  # fmt: skip


class Free(Structure):
    _fields_ = [("root", c_uint32), ("parent", c_uint32), ("old", c_uint32), ("status", c_uint32)]


class Dup(Structure):
    _fields_ = [
        ("client", c_uint32), ("parent", c_uint32), ("new", c_uint32), ("from_client", c_uint32),
        ("from_object", c_uint32), ("flags", c_uint32), ("status", c_uint32),
    ]  # fmt: skip


class Control(Structure):
    _fields_ = [
        ("client", c_uint32), ("object", c_uint32), ("command", c_uint32), ("flags", c_uint32),
        ("params", c_uint64), ("params_size", c_uint32), ("status", c_uint32),
    ]  # fmt: skip


class HostMemory(Structure):
    _fields_ = [
        ("root", c_uint32), ("parent", c_uint32), ("new", c_uint32), ("class_number", c_uint32),
        ("flags", c_uint32), ("memory", c_uint64), ("limit", c_uint64), ("status", c_uint32), ("fd", c_int32),
        ("rest", c_uint32),
    ]  # fmt: skip


class Xfer(Structure):
    _fields_ = [("command", c_uint32), ("size", c_uint32), ("pointer", c_uint64)]


class Device(Structure):
    _fields_ = [("device_id", c_uint32), ("rest", c_uint32 * 13)]


class Pci(Structure):
    _fields_ = [
        ("domain", c_uint32), ("bus", c_uint8), ("slot", c_uint8), ("function", c_uint8), ("vendor", c_uint16),
        ("device", c_uint16),
    ]  # fmt: skip


class CardParameters(Structure):
    _fields_ = [
        ("valid", c_uint8), ("pci", Pci), ("gpu_id", c_uint32), ("interrupt", c_uint16),
        ("register_address", c_uint64), ("register_size", c_uint64), ("fb_address", c_uint64),
        ("fb_size", c_uint64), ("minor", c_uint32), ("name", c_uint8 * 10),
    ]  # fmt: skip


class IdInfo(Structure):
    _fields_ = [
        ("gpu_id", c_uint32), ("flags", c_uint32), ("instance", c_uint32), ("subdevice", c_uint32),
        ("sli", c_uint32), ("board", c_uint32), ("gpu_instance", c_uint32), ("numa", c_int32),
    ]  # fmt: skip


class Gid(Structure):
    _fields_ = [("index", c_uint32), ("flags", c_uint32), ("length", c_uint32), ("data", c_uint8 * 256)]


class FbEntry(Structure):
    _fields_ = [("index", c_uint32), ("kib", c_uint32)]


class FbList(Structure):
    """Version 1: the list lies elsewhere."""

    _fields_ = [("count", c_uint32), ("entries", c_uint64)]


class FbListV2(Structure):
    """Of 580 and later."""

    _fields_ = [("count", c_uint32), ("entries", FbEntry * 128)]


class ExportOne(Structure):
    _fields_ = [
        ("type", c_uint32), ("device", c_uint32), ("parent", c_uint32), ("object", c_uint32), ("file", c_int32),
        ("flags", c_uint32),
    ]  # fmt: skip


class ImportOne(Structure):
    _fields_ = [
        ("file", c_int32), ("type", c_uint32), ("device", c_uint32), ("parent", c_uint32), ("object", c_uint32),
    ]  # fmt: skip


class ExportMany(Structure):
    _fields_ = [
        ("file", c_int32), ("device", c_uint32), ("most", c_uint16), ("metadata", c_uint8 * 64),
        ("objects", c_uint32 * 512), ("count", c_uint16), ("index", c_uint16),
    ]  # fmt: skip


class ImportMany(Structure):
    _fields_ = [
        ("file", c_int32), ("parent", c_uint32), ("objects", c_uint32 * 128), ("types", c_uint8 * 128),
        ("count", c_uint16), ("index", c_uint16),
    ]  # fmt: skip


class DmaBuf(Structure):
    """From 570 on, with the first of its handles alone."""

    _fields_ = [
        ("file", c_int32), ("client", c_uint32), ("total_objects", c_uint32), ("objects", c_uint32), ("index", c_uint32),
        ("total_size", c_uint64), ("mapping", c_uint8 * 4), ("handle", c_uint32), ("rest", c_uint8 * 2560),
        ("status", c_uint32), ("end", c_uint32),
    ]  # fmt: skip


class UvmInitialize(Structure):
    _fields_ = [("flags", c_uint64), ("status", c_uint32)]


class UvmMapExternal(Structure):
    """Of 550 and later."""

    _fields_ = [
        ("base", c_uint64), ("length", c_uint64), ("offset", c_uint64), ("attributes", c_uint8 * 9228),
        ("client", c_uint32), ("memory", c_uint32), ("status", c_uint32),
    ]  # fmt: skip


class UvmFree(Structure):
    """Up to 580."""

    _fields_ = [("base", c_uint64), ("length", c_uint64), ("status", c_uint32)]
