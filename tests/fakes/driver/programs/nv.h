/*
 * The driver's parameters as structures, written down from the published headers' facts: field order and width, and the
 * compiler does the rest. The server has offsets of its own; the two meet only through the calls.
 */
#ifndef PROGRAMS_NV_H
#define PROGRAMS_NV_H

#include <stdint.h>

enum nv_escape {
	NV_ALLOC_MEMORY = 0x27, NV_FREE = 0x29, NV_CONTROL = 0x2A, NV_ALLOC = 0x2B, NV_DUP = 0x34, NV_SHARE = 0x35, NV_VID_HEAP = 0x4A,
	NV_CARD_INFO = 200, NV_REGISTER_FD = 201, NV_XFER = 211,
};

enum nv_class { NV_CLIENT = 0x41, NV_DEVICE = 0x80, NV_SUBDEVICE = 0x2080, NV_VIDEO_MEMORY = 0x40, NV_CHANNEL = 0xC86F };

enum nv_command {
	NV_GPU_ID_INFO_V2 = 0x205, NV_FB_INFO = 0x20801301, NV_FB_INFO_V2 = 0x20801303,
};

enum nv_index { NV_TOTAL_RAM = 0x08, NV_HEAP_SIZE = 0x09, NV_RESERVED = 0x15, NV_HEAP_FREE = 0x16 };

/* Of memory: any but 0, which the driver takes for "mine alone" and gives to no program. */
enum { NV_OWNER = 0x56524d50 };

enum { NV_NO_MEMORY = 0x51, NV_CARDS = 32, NV_UVM_INITIALIZE = 0x30000001, NV_UVM_MM_INITIALIZE = 75 };

/* Of channels and their groups: the engine. */
enum { NV_GRAPHICS = 1 };

/* attr: page size in bits 24:23 */
enum { NV_ATTR_4K = 1 << 23, NV_ATTR_64K = 2 << 23, NV_ATTR_2M = 3 << 23 };

struct nv_free { uint32_t root, parent, old, status; };
struct nv_dup { uint32_t client, parent, object, from_client, from_object, flags, status; };
struct nv_share { uint32_t client, object, target, access; uint16_t type; uint8_t action; uint32_t status; };
struct nv_control { uint32_t client, object, command, flags; uint64_t params; uint32_t size, status; };
struct nv_alloc_memory {
	uint32_t root, parent, object, class_number, flags, pad;
	uint64_t memory, limit;
	uint32_t status, end;
	int32_t file;
	uint32_t rest;
};
struct nv_xfer { uint32_t command, size; uint64_t pointer; };

/* Up to 525 the status follows the pointer; from 535 on the size of the parameters lies between. */
struct nv_alloc_525 { uint32_t root, parent, object, class_number; uint64_t params; uint32_t status, pad; };
struct nv_alloc_535 { uint32_t root, parent, object, class_number; uint64_t params; uint32_t size, status; };
struct nv_alloc_long_515 { uint32_t root, parent, object, class_number; uint64_t params, rights; uint32_t status, pad; };
struct nv_alloc_long_525 { uint32_t root, parent, object, class_number; uint64_t params, rights; uint32_t flags, status; };
struct nv_alloc_long_535 {
	uint32_t root, parent, object, class_number;
	uint64_t params, rights;
	uint32_t size, flags, status, pad;
};

struct nv_memory_params {	/* 128 bytes; 120 up to 535, which is the same but for the end */
	uint32_t owner, type, flags, width;
	uint32_t height;
	int32_t pitch;
	uint32_t attr, attr2, format, compression, zcull, pad;
	uint64_t range_low, range_high, bytes, alignment, offset, limit, address;
	uint32_t ctag, va_space, internal, tag;
	int32_t numa_node;
	uint32_t end;
};

struct nv_heap {		/* of function 2, ALLOC_SIZE; 184 bytes */
	uint32_t root, parent, function, va_space;
	int16_t ivc;
	uint32_t status;
	uint64_t total, free;
	uint32_t owner, memory, type, flags, attr, format, compression, zcull, stride, width, height;
	uint64_t bytes, alignment, offset, limit, address, begin, end;
	uint32_t attr2, ctag;
	int32_t numa_node;
	uint32_t rest[7];
};

struct nv_heap_surface {	/* of function 1, ALLOC_DEPTH_WIDTH_HEIGHT, up to 525: the same size */
	uint32_t root, parent, function, va_space;
	int16_t ivc;
	uint32_t status;
	uint64_t total, free;
	uint32_t owner, memory, type, flags, depth, width, height, attr, format, compression, zcull, stride;
	uint64_t bytes, alignment, offset, limit, address, begin, end;
	uint32_t attr2, ctag, rest[8];
};

struct nv_card {
	uint8_t valid;
	struct { uint32_t domain; uint8_t bus, slot, function; uint16_t vendor, device; } pci;
	uint32_t gpu_id;
	uint16_t interrupt;
	uint64_t register_address, register_size, fb_address, fb_size;
	uint32_t minor;
	uint8_t name[10];
};

struct nv_device {
	uint32_t device_id, share, target_client, target_device, flags;
	uint64_t va_size, va_start, va_limit;
	uint32_t va_mode;
};

struct nv_channel {	/* 360 bytes in 535; later branches have more behind */
	uint32_t error, buffer;
	uint64_t entries_at;
	uint32_t entries, flags, share, va_space, userd[8];
	uint64_t userd_at[8];
	uint32_t engine, rest[57];
};

struct nv_id_info { uint32_t gpu_id, flags, instance, subdevice, sli, board, gpu_instance; int32_t numa; };
struct nv_gid { uint32_t index, flags, length; uint8_t data[256]; };
struct nv_fb_entry { uint32_t index, kib; };
struct nv_fb { uint32_t count; struct nv_fb_entry entries[128]; };
struct nv_fb_v1 { uint32_t count; uint64_t entries; };
struct nv_uvm_initialize { uint64_t flags; uint32_t status; };
struct nv_uvm_mm_initialize { int32_t file; uint32_t status; };

_Static_assert(sizeof(struct nv_alloc_535) == 32 && sizeof(struct nv_alloc_long_535) == 48, "RM_ALLOC");
_Static_assert(sizeof(struct nv_memory_params) == 128 && sizeof(struct nv_heap) == 184, "memory");
_Static_assert(sizeof(struct nv_heap_surface) == 184, "memory by the size of a surface");
_Static_assert(sizeof(struct nv_channel) == 360, "a channel");
_Static_assert(sizeof(struct nv_share) == 24 && sizeof(struct nv_dup) == 28, "sharing");
_Static_assert(sizeof(struct nv_alloc_memory) == 56, "RM_ALLOC_MEMORY");
_Static_assert(sizeof(struct nv_card) == 72 && sizeof(struct nv_device) == 56, "cards");

#endif
