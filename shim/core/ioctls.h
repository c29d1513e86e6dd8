/* SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0 */
/* The calls that the core watches. Generated from layouts.csv by `python -m shim.core.layout_generator`: edit that. */
#ifndef IOCTLS_H
#define IOCTLS_H

/* _IOC_NR, the same in every branch. */
enum {
	ESC_ALLOC_MEMORY = 0x27,
	ESC_FREE = 0x29,
	ESC_CONTROL = 0x2a,
	ESC_ALLOC = 0x2b,
	ESC_DUP_OBJECT = 0x34,
	ESC_VID_HEAP_CONTROL = 0x4a,
	ESC_ALLOC_CONTEXT_DMA = 0x54,
	ESC_CARD_INFO = 0xc8,
	ESC_XFER_CMD = 0xd3,
};

#endif
