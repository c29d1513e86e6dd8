/* SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0 */
/*
 * Where the driver keeps what, branch by branch. Generated from layouts.csv and branches.csv by
 * `python -m shim.core.layout_generator`: edit those. header_check.py compares them with NVIDIA's published headers.
 */
#ifndef LAYOUTS_H
#define LAYOUTS_H

#include "core.h"

/* The same in every branch. */
enum {
	CLASS_ROOT = 0x0,
	CLASS_ROOT_NON_PRIV = 0x1,
	CLASS_ROOT_CLIENT = 0x41,
	CLASS_MEMORY = 0x40,
	CLASS_DEVICE = 0x80,
	CLASS_LIST_FBMEM = 0x82,
	CLASS_LIST_OBJECT = 0x83,
	CLASS_HW_RESOURCES = 0xb1,
	CLASS_LOCAL_PHYSICAL = 0xc2,
	CLASS_USER_SHARED = 0xde,
	CLASS_SEMAPHORE_SURFACE = 0xda,
	CLASS_FABRIC_EXPORT = 0xe0,
	CLASS_FLA = 0xf3,
	CLASS_EVENT_BUFFER = 0x90cd,
	CLASS_CHANNEL_GROUP = 0xa06c,
	CHANNEL_MEMORIES = 0x8,
	CLASS_SUBDEVICE = 0x2080,
	HEAP_ALLOC_DEPTH = 0x1,
	HEAP_ALLOC_SIZE = 0x2,
	HEAP_FREE = 0x3,
	HEAP_REPORT = 0x5,
	HEAP_ALLOC_TILED = 0x6,
	HEAP_DUMP = 0xb,
	HEAP_ALLOC_RANGE = 0xe,
	HEAP_REACQUIRE = 0xf,
	HEAP_RELEASE = 0x10,
	HEAP_ALIGNMENT = 0x12,
	HEAP_HW_ALLOC = 0x13,
	HEAP_HW_FREE = 0x14,
	HEAP_HOST_MEMORY = 0x1b,
	FLAG_VIRTUAL = 0x80000,
	FLAG_FIXED_ADDRESS = 0x10,
	ATTRIBUTE_PAGE_SHIFT = 0x17,
	PAGES_BY_SIZE = 0x0,
	PAGES_HUGE = 0x3,
	ATTRIBUTE2_HUGE_SHIFT = 0x14,
	HUGE_512_MIB = 0x2,
	HUGE_256_GIB = 0x3,
	ATTRIBUTE_COMPRESSION_SHIFT = 0xc,
	FLAG_SERIALIZED = 0x1,
	FLAG_CONTROL_SERIALIZED = 0x4,
	MOST_EXPORTS = 0x200,
	MOST_IMPORTS = 0x80,
	COMMAND_EXPORT = 0x3d05,
	COMMAND_IMPORT = 0x3d06,
	COMMAND_EXPORTS = 0x3d0b,
	COMMAND_IMPORTS = 0x3d0c,
	COMMAND_REPORT_LIST = 0x20801301,
	COMMAND_REPORT_INLINE = 0x20801303,
	COMMAND_DISABLE_CHANNELS = 0x2080110b,
	COMMAND_DISABLE_FOR_KEYS = 0x2080111a,
	COMMAND_ROTATE_KEYS = 0x2080111c,
	COMMAND_ZCULL_MODE = 0x20801205,
	COMMAND_ZCULL_BIND = 0x20801208,
	COMMAND_PM_BIND = 0x20801209,
	COMMAND_PREEMPTION_BIND = 0x20801211,
	COMMAND_SETUP_BIND = 0x2080123a,
	COMMAND_REGISTERS = 0x20800122,
	COMMAND_SET_TIMESLICE = 0xa06c0103,
	COMMAND_CHANNEL_PROPERTIES = 0x80170f,
	CLIENTS_MOST = 0x40,
	COMMAND_ID = 0x205,
	COMMAND_ID_LONG = 0x202,
	REPORT_RAM = 0x7,
	REPORT_TOTAL_RAM = 0x8,
	REPORT_HEAP = 0x9,
	REPORT_MAPPABLE_HEAP = 0xa,
	REPORT_LARGEST_FREE = 0x12,
	REPORT_RESERVED = 0x15,
	REPORT_HEAP_FREE = 0x16,
	REPORT_USABLE_RAM = 0x20,
	REPORT_PROTECTED = 0x33,
	REPORT_PROTECTED_FREE = 0x34,
	STATUS_FIRST_WARNING = 0x10001,
	STATUS_NOT_PERMITTED = 0x1b,
	STATUS_NO_CHANNELS = 0x4f,
	STATUS_NO_MEMORY = 0x51,
	STATUS_NOT_SUPPORTED = 0x56,
	LIMIT_CARDS = 0x20,
	ALLOC_SHORT_BYTES_MOST = 32,
	ALLOC_LONG_BYTES_MOST = 48,
	HEAP_BYTES_MOST = 184,
	FREE_BYTES_MOST = 16,
	DUP_BYTES_MOST = 28,
	CONTROL_BYTES_MOST = 32,
	EXPORT_BYTES_MOST = 24,
	IMPORT_BYTES_MOST = 20,
	EXPORTS_BYTES_MOST = 2128,
	IMPORTS_BYTES_MOST = 652,
	WINDOW_BYTES_MOST = 56,
	CONTEXT_BYTES_MOST = 56,
	REPORT_BYTES_MOST = 8,
	REPORT_LIST_BYTES_MOST = 16,
	REPORT_INLINE_BYTES_MOST = 1028,
	CARD_BYTES_MOST = 72,
	WRAPPER_BYTES_MOST = 16,
};

/* Offsets, and `bytes`: a size. 0 also where a branch has no such field; none of those is at the start. */
struct core_layout {
	uint16_t branch;
	uint16_t alloc_short_bytes;
	uint16_t alloc_short_status;
	uint16_t alloc_long_bytes;
	uint16_t alloc_long_flags;
	uint16_t alloc_long_status;
	uint16_t alloc_root;
	uint16_t alloc_parent;
	uint16_t alloc_handle;
	uint16_t alloc_class;
	uint16_t alloc_parameters;
	uint16_t memory_flags;
	uint16_t memory_attributes;
	uint16_t memory_attributes2;
	uint16_t memory_size;
	uint16_t device_instance;
	uint16_t channel_memories;
	uint16_t heap_bytes;
	uint16_t heap_root;
	uint16_t heap_parent;
	uint16_t heap_function;
	uint16_t heap_status;
	uint16_t heap_total;
	uint16_t heap_free;
	uint16_t heap_size_memory;
	uint16_t heap_size_flags;
	uint16_t heap_size_attributes;
	uint16_t heap_size_size;
	uint16_t heap_size_attributes2;
	uint16_t heap_range_memory;
	uint16_t heap_range_flags;
	uint16_t heap_range_attributes;
	uint16_t heap_range_size;
	uint16_t heap_range_attributes2;
	uint16_t heap_free_memory;
	uint16_t heap_report_largest;
	uint16_t free_bytes;
	uint16_t free_root;
	uint16_t free_handle;
	uint16_t free_status;
	uint16_t dup_bytes;
	uint16_t dup_client;
	uint16_t dup_parent;
	uint16_t dup_handle;
	uint16_t dup_source_client;
	uint16_t dup_source_handle;
	uint16_t dup_status;
	uint16_t control_bytes;
	uint16_t control_client;
	uint16_t control_handle;
	uint16_t control_command;
	uint16_t control_parameters;
	uint16_t control_parameters_size;
	uint16_t control_flags;
	uint16_t control_status;
	uint16_t export_bytes;
	uint16_t export_object;
	uint16_t export_file;
	uint16_t import_bytes;
	uint16_t import_file;
	uint16_t import_parent;
	uint16_t import_object;
	uint16_t exports_bytes;
	uint16_t exports_file;
	uint16_t exports_objects;
	uint16_t exports_count;
	uint16_t exports_index;
	uint16_t imports_bytes;
	uint16_t imports_file;
	uint16_t imports_parent;
	uint16_t imports_objects;
	uint16_t imports_count;
	uint16_t imports_index;
	uint16_t window_bytes;
	uint16_t window_class;
	uint16_t window_status;
	uint16_t context_bytes;
	uint16_t context_class;
	uint16_t context_status;
	uint16_t report_bytes;
	uint16_t report_data;
	uint16_t report_list_bytes;
	uint16_t report_list_count;
	uint16_t report_list_entries;
	uint16_t report_inline_bytes;
	uint16_t report_inline_count;
	uint16_t report_inline_entries;
	uint16_t disable_channels_count;
	uint16_t disable_channels_clients;
	uint16_t disable_for_keys_count;
	uint16_t disable_for_keys_clients;
	uint16_t rotate_keys_count;
	uint16_t rotate_keys_clients;
	uint16_t zcull_mode_client;
	uint16_t zcull_bind_client;
	uint16_t pm_bind_client;
	uint16_t preemption_bind_client;
	uint16_t setup_bind_client;
	uint16_t registers_client;
	uint16_t id_gpu_id;
	uint16_t id_instance;
	uint16_t id_long_gpu_id;
	uint16_t id_long_instance;
	uint16_t card_bytes;
	uint16_t card_valid;
	uint16_t card_gpu_id;
	uint16_t card_minor;
	uint16_t wrapper_bytes;
	uint16_t wrapper_number;
	uint16_t wrapper_size;
	uint16_t wrapper_pointer;
};

#define LAYOUTS_SHARED \
	.alloc_short_bytes = 32, \
	.alloc_root = 0, \
	.alloc_parent = 4, \
	.alloc_handle = 8, \
	.alloc_class = 12, \
	.alloc_parameters = 16, \
	.memory_flags = 8, \
	.memory_attributes = 24, \
	.memory_attributes2 = 28, \
	.memory_size = 64, \
	.device_instance = 0, \
	.channel_memories = 32, \
	.heap_bytes = 184, \
	.heap_root = 0, \
	.heap_parent = 4, \
	.heap_function = 8, \
	.heap_status = 20, \
	.heap_total = 24, \
	.heap_free = 32, \
	.heap_size_memory = 44, \
	.heap_size_flags = 52, \
	.heap_size_attributes = 56, \
	.heap_size_size = 88, \
	.heap_size_attributes2 = 144, \
	.heap_range_memory = 44, \
	.heap_range_flags = 52, \
	.heap_range_attributes = 56, \
	.heap_range_size = 80, \
	.heap_range_attributes2 = 136, \
	.heap_free_memory = 44, \
	.heap_report_largest = 56, \
	.free_bytes = 16, \
	.free_root = 0, \
	.free_handle = 8, \
	.free_status = 12, \
	.dup_bytes = 28, \
	.dup_client = 0, \
	.dup_parent = 4, \
	.dup_handle = 8, \
	.dup_source_client = 12, \
	.dup_source_handle = 16, \
	.dup_status = 24, \
	.control_bytes = 32, \
	.control_client = 0, \
	.control_handle = 4, \
	.control_command = 8, \
	.control_parameters = 16, \
	.control_parameters_size = 24, \
	.control_flags = 12, \
	.control_status = 28, \
	.export_bytes = 24, \
	.export_object = 12, \
	.export_file = 16, \
	.import_bytes = 20, \
	.import_file = 0, \
	.import_parent = 12, \
	.import_object = 16, \
	.exports_bytes = 2128, \
	.exports_file = 0, \
	.exports_objects = 76, \
	.exports_count = 2124, \
	.exports_index = 2126, \
	.imports_bytes = 652, \
	.imports_file = 0, \
	.imports_parent = 4, \
	.imports_objects = 8, \
	.imports_count = 648, \
	.imports_index = 650, \
	.window_bytes = 56, \
	.window_class = 12, \
	.window_status = 40, \
	.context_bytes = 56, \
	.context_class = 12, \
	.context_status = 48, \
	.report_bytes = 8, \
	.report_data = 4, \
	.report_list_bytes = 16, \
	.report_list_count = 0, \
	.report_list_entries = 8, \
	.report_inline_count = 0, \
	.report_inline_entries = 4, \
	.disable_channels_count = 4, \
	.disable_channels_clients = 24, \
	.disable_for_keys_count = 0, \
	.rotate_keys_count = 0, \
	.zcull_mode_client = 4, \
	.zcull_bind_client = 0, \
	.pm_bind_client = 0, \
	.preemption_bind_client = 4, \
	.setup_bind_client = 0, \
	.registers_client = 0, \
	.id_gpu_id = 0, \
	.id_instance = 8, \
	.id_long_gpu_id = 0, \
	.id_long_instance = 8, \
	.card_bytes = 72, \
	.card_valid = 0, \
	.card_gpu_id = 16, \
	.card_minor = 56, \
	.wrapper_bytes = 16, \
	.wrapper_number = 0, \
	.wrapper_size = 4, \
	.wrapper_pointer = 8

#define LAYOUTS(X) \
	X(515, .alloc_short_status = 24, .alloc_long_bytes = 40, .alloc_long_flags = 0, .alloc_long_status = 32, .report_inline_bytes = 436, .disable_for_keys_clients = 0, .rotate_keys_clients = 0) \
	X(520, .alloc_short_status = 24, .alloc_long_bytes = 40, .alloc_long_flags = 0, .alloc_long_status = 32, .report_inline_bytes = 436, .disable_for_keys_clients = 0, .rotate_keys_clients = 0) \
	X(525, .alloc_short_status = 24, .alloc_long_bytes = 40, .alloc_long_flags = 32, .alloc_long_status = 36, .report_inline_bytes = 436, .disable_for_keys_clients = 0, .rotate_keys_clients = 0) \
	X(530, .alloc_short_status = 24, .alloc_long_bytes = 40, .alloc_long_flags = 32, .alloc_long_status = 36, .report_inline_bytes = 436, .disable_for_keys_clients = 0, .rotate_keys_clients = 0) \
	X(535, .alloc_short_status = 28, .alloc_long_bytes = 48, .alloc_long_flags = 36, .alloc_long_status = 40, .report_inline_bytes = 436, .disable_for_keys_clients = 0, .rotate_keys_clients = 0) \
	X(545, .alloc_short_status = 28, .alloc_long_bytes = 48, .alloc_long_flags = 36, .alloc_long_status = 40, .report_inline_bytes = 444, .disable_for_keys_clients = 0, .rotate_keys_clients = 0) \
	X(550, .alloc_short_status = 28, .alloc_long_bytes = 48, .alloc_long_flags = 36, .alloc_long_status = 40, .report_inline_bytes = 444, .disable_for_keys_clients = 4, .rotate_keys_clients = 0) \
	X(555, .alloc_short_status = 28, .alloc_long_bytes = 48, .alloc_long_flags = 36, .alloc_long_status = 40, .report_inline_bytes = 444, .disable_for_keys_clients = 4, .rotate_keys_clients = 0) \
	X(560, .alloc_short_status = 28, .alloc_long_bytes = 48, .alloc_long_flags = 36, .alloc_long_status = 40, .report_inline_bytes = 460, .disable_for_keys_clients = 4, .rotate_keys_clients = 0) \
	X(565, .alloc_short_status = 28, .alloc_long_bytes = 48, .alloc_long_flags = 36, .alloc_long_status = 40, .report_inline_bytes = 460, .disable_for_keys_clients = 4, .rotate_keys_clients = 0) \
	X(570, .alloc_short_status = 28, .alloc_long_bytes = 48, .alloc_long_flags = 36, .alloc_long_status = 40, .report_inline_bytes = 460, .disable_for_keys_clients = 4, .rotate_keys_clients = 0) \
	X(575, .alloc_short_status = 28, .alloc_long_bytes = 48, .alloc_long_flags = 36, .alloc_long_status = 40, .report_inline_bytes = 460, .disable_for_keys_clients = 4, .rotate_keys_clients = 0) \
	X(580, .alloc_short_status = 28, .alloc_long_bytes = 48, .alloc_long_flags = 36, .alloc_long_status = 40, .report_inline_bytes = 1028, .disable_for_keys_clients = 4, .rotate_keys_clients = 0) \
	X(590, .alloc_short_status = 28, .alloc_long_bytes = 48, .alloc_long_flags = 36, .alloc_long_status = 40, .report_inline_bytes = 1028, .disable_for_keys_clients = 4, .rotate_keys_clients = 0) \
	X(595, .alloc_short_status = 28, .alloc_long_bytes = 48, .alloc_long_flags = 36, .alloc_long_status = 40, .report_inline_bytes = 1028, .disable_for_keys_clients = 4, .rotate_keys_clients = 4)

/* NULL when no headers of that version's branch are published. */
const struct core_layout *layouts_find(const char *driver_version);

#endif
