/* SPDX-License-Identifier: MIT OR GPL-2.0 */
/* A simulated PCI bus, and the GSP of its first function. */
#ifndef FAKEPCI_H
#define FAKEPCI_H

#include <linux/types.h>

enum { FAKEPCI_REGISTERS = 0x1000000 };	/* BAR 0: 16 MiB */

/* bus.c: where the registers of the first function lie, and an MSI of it, as a device sends one. */
phys_addr_t fakepci_registers(void);
void fakepci_interrupt(void);

/* gsp.c: the thread that answers; nothing to stop where it was not started. */
int gsp_start(void);
void gsp_stop(void);

/* Whether the kernel has memory there that the driver may have given us by its address. */
bool gsp_is_memory(u64 address);

/* gsp_replies.c, both in the driver's own structures: */
void gsp_describe_card(u8 *info);
u32 gsp_reply(u32 command, u8 *parameters, u32 size);	/* a status: 0 is well */

#endif
