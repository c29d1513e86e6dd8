/*
 * Where the fields of the driver's parameter structures lie, by driver branch. The numbers were measured by compiling the
 * published headers of every release of these branches; docs/gpu-verification.md (D1) says more. This table is written for
 * the fake driver alone: other code that decodes the same structures has a table of its own, so that one wrong
 * number in either shows.
 */
#ifndef FAKE_LAYOUT_H
#define FAKE_LAYOUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What differs between branches. */
struct layout {
	unsigned branch;		/* the first number of the version */
	uint16_t alloc_status;		/* of the short RM_ALLOC; its size is 32 everywhere */
	uint16_t alloc_long_size;
	uint16_t alloc_long_status;
	uint16_t memory_size;		/* the parameters of a memory class */
	uint16_t fb_entries;		/* in FB_GET_INFO_V2 */
	uint16_t uvm_map_size;		/* UVM_MAP_EXTERNAL_ALLOCATION; the handles are its end */
	uint16_t uvm_free_size;
	uint16_t dmabuf_size;		/* EXPORT_TO_DMABUF_FD */
	uint16_t dmabuf_handles;
};

/* branch, short status, long size and status, memory, FB entries, uvm map and free, dma-buf */
#define LAYOUTS(X) \
	X(515, 24, 40, 32, 120, 54, 1200, 24, 2600, 32) \
	X(520, 24, 40, 32, 120, 54, 1200, 24, 2600, 32) \
	X(525, 24, 40, 36, 120, 54, 1200, 24, 2600, 32) \
	X(530, 24, 40, 36, 120, 54, 1200, 24, 2600, 32) \
	X(535, 28, 48, 40, 120, 54, 1200, 24, 2600, 32) \
	X(545, 28, 48, 40, 128, 55, 1200, 24, 2600, 32) \
	X(550, 28, 48, 40, 128, 55, 9264, 24, 2600, 32) \
	X(555, 28, 48, 40, 128, 55, 9264, 24, 2600, 32) \
	X(560, 28, 48, 40, 128, 57, 9264, 24, 2600, 32) \
	X(565, 28, 48, 40, 128, 57, 9264, 24, 2600, 32) \
	X(570, 28, 48, 40, 128, 57, 9264, 24, 2608, 36) \
	X(575, 28, 48, 40, 128, 57, 9264, 24, 2608, 36) \
	X(580, 28, 48, 40, 128, 128, 9264, 24, 2608, 36) \
	X(590, 28, 48, 40, 128, 128, 9264, 16, 2608, 36) \
	X(595, 28, 48, 40, 128, 128, 9264, 16, 2608, 36)

/* What every branch has alike: `size` of the whole, then the offsets. */
enum {
	/* NVOS21 and NVOS64: RM_ALLOC */
	ALLOC_SIZE = 32, ALLOC_ROOT = 0, ALLOC_PARENT = 4, ALLOC_NEW = 8, ALLOC_CLASS = 12, ALLOC_PARAMS = 16,
	/* NVOS00: RM_FREE */
	FREE_SIZE = 16, FREE_ROOT = 0, FREE_OLD = 8, FREE_STATUS = 12,
	/* NVOS55: RM_DUP_OBJECT */
	DUP_SIZE = 28, DUP_CLIENT = 0, DUP_PARENT = 4, DUP_NEW = 8, DUP_FROM_CLIENT = 12, DUP_FROM = 16,
	DUP_STATUS = 24,
	/* NVOS57: RM_SHARE */
	SHARE_SIZE = 24, SHARE_CLIENT = 0, SHARE_OBJECT = 4, SHARE_TYPE = 16, SHARE_STATUS = 20,
	/* NVOS54: RM_CONTROL */
	CONTROL_SIZE = 32, CONTROL_CLIENT = 0, CONTROL_OBJECT = 4, CONTROL_COMMAND = 8, CONTROL_PARAMS = 16,
	CONTROL_PARAMS_SIZE = 24, CONTROL_STATUS = 28,
	/* NVOS02 with a file descriptor: RM_ALLOC_MEMORY */
	HOST_SIZE = 56, HOST_ROOT = 0, HOST_PARENT = 4, HOST_NEW = 8, HOST_CLASS = 12, HOST_STATUS = 40,
	/* NVOS32: RM_VID_HEAP_CONTROL */
	HEAP_SIZE = 184, HEAP_ROOT = 0, HEAP_PARENT = 4, HEAP_FUNCTION = 8, HEAP_STATUS = 20, HEAP_TOTAL = 24,
	HEAP_FREE = 32, HEAP_OWNER = 40, HEAP_MEMORY = 44, HEAP_FLAGS = 52, HEAP_FREE_FLAGS = 48,
	HEAP_LARGEST_BASE = 48, HEAP_LARGEST = 56, HEAP_BASE = 64,
	/* the parameters of memory classes */
	MEMORY_OWNER = 0, MEMORY_FLAGS = 8, MEMORY_ATTR = 24, MEMORY_ATTR2 = 28, MEMORY_BYTES = 64,
	MEMORY_ALIGNMENT = 72, MEMORY_OFFSET = 80, MEMORY_LIMIT = 88,
	/* NV0080: a device */
	DEVICE_SIZE = 56, DEVICE_ID = 0,
	/* the parameters of channels: the first of eight handles */
	CHANNEL_USERD = 32,
	/* CARD_INFO, one entry */
	CARD_SIZE = 72, CARD_VALID = 0, CARD_BUS = 8, CARD_VENDOR = 12, CARD_DEVICE = 14,
	CARD_GPU_ID = 16, CARD_FB_SIZE = 48, CARD_MINOR = 56,
	/* IOCTL_XFER_CMD */
	XFER_SIZE = 16, XFER_COMMAND = 0, XFER_LENGTH = 4, XFER_POINTER = 8,
	/* controls */
	ID_INFO_SIZE = 32, ID_INFO_GPU = 0, ID_INFO_INSTANCE = 8, ID_INFO_GPU_INSTANCE = 24, ID_INFO_NUMA = 28,
	ATTACHED_COUNT = 32, ATTACHED_SIZE = 128,
	GID_SIZE = 268, GID_FLAGS = 4, GID_LENGTH = 8, GID_DATA = 12,
	CHANNELS_SIZE = 536, CHANNELS_COUNT = 4, CHANNELS_CLIENTS = 24, CHANNELS_HANDLES = 280, CHANNELS_MOST = 64,
	EXPORT_SIZE = 24, EXPORT_TYPE = 0, EXPORT_OBJECT = 12, EXPORT_FILE = 16, EXPORT_FLAGS = 20,
	IMPORT_SIZE = 20, IMPORT_FILE = 0, IMPORT_TYPE = 4, IMPORT_PARENT = 12, IMPORT_OBJECT = 16,
	EXPORTS_SIZE = 2128, EXPORTS_FILE = 0, EXPORTS_DEVICE = 4, EXPORTS_MOST = 8, EXPORTS_OBJECTS = 76, EXPORTS_COUNT = 2124,
	EXPORTS_INDEX = 2126, EXPORTS_LARGEST = 512,
	IMPORTS_SIZE = 652, IMPORTS_FILE = 0, IMPORTS_PARENT = 4, IMPORTS_OBJECTS = 8, IMPORTS_COUNT = 648,
	IMPORTS_INDEX = 650, IMPORTS_LARGEST = 128,
	DMABUF_CLIENT = 4, DMABUF_END_AND_STATUS = 8,
	FB_COUNT = 0, FB_ENTRIES_V2 = 4, FB_ENTRY = 8, FB_V1_SIZE = 16, FB_V1_POINTER = 8,
};

/* The four ways in which VID_HEAP_CONTROL allocates differ in these. */
struct heap_layout {
	uint32_t function;
	uint16_t attr, attr2, bytes, limit;	/* alignment and offset follow the bytes */
	unsigned last_branch;		/* that has it */
};

#define HEAP_LAYOUTS(X) \
	X(1, 68, 144, 88, 112, 525) \
	X(2, 56, 144, 88, 112, UINT32_MAX) \
	X(6, 64, 144, 88, 112, UINT32_MAX) \
	X(14, 56, 136, 80, 104, UINT32_MAX)

enum {
	HEAP_SURFACE_FUNCTION = 1, HEAP_DEPTH = 56, HEAP_SURFACE_WIDTH = 60, HEAP_SURFACE_HEIGHT = 64,
	HEAP_PITCH_FUNCTION = 6, HEAP_PITCH_HEIGHT = 56, HEAP_PITCH = 60,
};

const struct layout *layout_of(unsigned branch);

/* NULL: that branch has no such way to allocate. */
const struct heap_layout *heap_layout_of(uint32_t function, unsigned branch);

/* Fields are read and written where they lie, aligned or not. */
uint32_t get32(const unsigned char *at, size_t offset);
uint16_t get16(const unsigned char *at, size_t offset);
uint64_t get64(const unsigned char *at, size_t offset);
void put16(unsigned char *at, size_t offset, uint16_t value);
void put32(unsigned char *at, size_t offset, uint32_t value);
void put64(unsigned char *at, size_t offset, uint64_t value);

#endif
