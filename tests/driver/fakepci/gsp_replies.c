// SPDX-License-Identifier: MIT OR GPL-2.0
/*
 * What the GSP says of the card and its parts, in the structures of driver 535.261.03. All values are invented: they are the
 * fewest with which the driver opens the card, hands out its memory and makes channels, on which nothing runs.
 */
#include <linux/io.h>
#include <linux/kernel.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/sizes.h>
#include <linux/string.h>

#include "fakepci.h"

static uint gib = 80;
module_param(gib, uint, 0444);
MODULE_PARM_DESC(gib, "Of memory that the card says it has (initially 80)");

static uint controls_with_clients;
module_param(controls_with_clients, uint, 0444);
MODULE_PARM_DESC(controls_with_clients, "How many controls that name clients have reached the card, to be read");

/* Offsets in the reply to GET_GSP_STATIC_INFO. */
enum { ID_AT = 28, REGIONS_AT = 840, BRANDING_AT = 1616, LENGTH_AT = 1752, BUS_WIDTH_AT = 1764, NAME_AT = 1820, IS_TESLA_AT = 2083 };

/* Commands with a reply here. */
enum {
	TRANSFER = 0x20800afa,
	CHANNELS = 0x20800a61,
	SAFE_CHANNELS = 0x20800ad8,
	CHIP = 0x20800a36,
	REGISTERS = 0x20800a41,
	PROCESSORS = 0x20800a42,
	DEVICES = 0x20800a40,
	ENGINES = 0x20801112,
	BARS = 0x20801803,
	BAR_TRUST = 0x20800af3,		/* of no BAR: page tables then go through TRANSFER */
	LINK = 0x20800aac,
	INTERRUPTS = 0x20800a5c,
	MEMORY = 0x20800a1c,
	FAULT_METHODS = 0x20802a08,
	FAULTS = 0x20800a59,
	POWER = 0x20802609,
	SEGMENT = 0x2080017e,
	GRAPHICS = 0x20800a2a,
	CONTEXT_BUFFERS = 0x20800a32,

	/* What the driver hands on with the clients that a program named: */
	DISABLE_CHANNELS = 0x2080110b,
	ZCULL_MODE = 0x20801205,
	ZCULL_BIND = 0x20801208,
	PM_BIND = 0x20801209,
	PREEMPTION_BIND = 0x20801211,
};

/* In the list of facts about a graphics engine: how many subcontexts a channel group may have. */
enum { FACTS = 53, SUBCONTEXTS = 0x2c, LEGACY_SUBCONTEXTS = 0x2d, ENGINE_SUBCONTEXTS = 0x2e };

enum { DOORBELL = 129, ENGINE_CE0 = 0x793ceb00, ENGINE_GR0 = 0xd334df00, VECTORS = 128, MEMORY_OF_CARD = 2 };

static void put32(u8 *at, u32 value)
{
	memcpy(at, &value, sizeof(value));
}

void gsp_describe_card(u8 *info)
{
	const u64 length = (u64)gib * SZ_1G;
	const struct {
		u32 count, pad;
		u64 base, limit, reserved;
		u32 performance;
		u8 is_compressible, is_iso;
	} regions = { 1, 0, 0, length - 1, 0, 100, 1, 1 };
	static const struct {
		u32 flags, length;
		u8 bytes[16];
	} uuid = { 2, 16, { 0x5e, 0xed, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14 } };

	memcpy(info + REGIONS_AT, &regions, sizeof(regions));
	memcpy(info + LENGTH_AT, &length, sizeof(length));
	put32(info + BUS_WIDTH_AT, 5120);
	put32(info + BRANDING_AT, 1);
	memcpy(info + ID_AT, &uuid, sizeof(uuid));
	strscpy(info + NAME_AT, "NVIDIA H100 that is not there", 64);
	info[IS_TESLA_AT] = 1;	/* of the kind that the open modules serve */
}

/* The GSP copies for the driver between memory and the card's memory, of which one page is kept. */
static void transfer(const u8 *parameters)
{
	static u8 page_of_card[PAGE_SIZE];
	struct surface {
		u64 at, size, offset;
		u32 aperture, cache;
	} from, to;
	u64 size;

	memcpy(&from, parameters, sizeof(from));
	memcpy(&to, parameters + sizeof(from) + 16, sizeof(to)); /* a tag lies between */
	memcpy(&size, parameters + sizeof(from) + 16 + sizeof(to), sizeof(size));
	if (size > PAGE_SIZE || from.aperture == to.aperture)
		return;
	if (to.aperture == MEMORY_OF_CARD && gsp_is_memory(from.at + from.offset))
		memcpy(page_of_card, phys_to_virt(from.at + from.offset), size);
	else if (from.aperture == MEMORY_OF_CARD && gsp_is_memory(to.at + to.offset))
		memcpy(phys_to_virt(to.at + to.offset), page_of_card, size);
}

/* Which engine has which vector; 64 of them make a subtree. Both of UVM's have to be in one leaf. */
static void list_interrupts(u8 *info)
{
	static const struct {
		u16 engine, vector, quiet_vector;
	} table[] = {
		{ 1, 7, 0 },	/* timer */
		{ 4, 1, 0 },	/* host */
		{ 15, 2, 70 },	/* copy engine 0 */
		{ 49, 3, 0 },	/* the GSP */
		{ 58, 193, 0 },	/* faults that can be replayed */
		{ 59, 192, 0 },	/* access counters */
		{ 60, 130, 0 },	/* faults that cannot */
		{ 61, 194, 0 }, { 62, 131, 0 }, { 63, 132, 0 },
		{ 72, DOORBELL, 0 }, { 73, 5, 0 },
		{ 82, 6, 71 },	/* graphics */
	};
	static const u8 subtrees[] = { 0, 0, 0, 0, 1, 1, 0, 0, 1, 1, 3, 3, 2, 2 };
	u32 i;

	put32(info, ARRAY_SIZE(table));
	for (i = 0; i < ARRAY_SIZE(table); i++) {
		u8 *at = info + 4 + 16 * i;

		memcpy(at, &table[i].engine, sizeof(table[i].engine));
		put32(at + 4, 0);
		put32(at + 8, table[i].vector ? table[i].vector : ~0U);
		put32(at + 12, table[i].quiet_vector ? table[i].quiet_vector : ~0U);
	}
	memcpy(info + 4 + 16 * VECTORS, subtrees, sizeof(subtrees));
}

static void list_bars(u8 *info)
{
	static const u32 sizes[] = { SZ_16M, SZ_64M, SZ_32M };
	u32 i;

	put32(info, ARRAY_SIZE(sizes));
	for (i = 0; i < ARRAY_SIZE(sizes); i++) {
		put32(info + 8 + 24 * i + 4, sizes[i] >> 20);
		put32(info + 8 + 24 * i + 8, sizes[i]);
	}
}

/* The engines that channels are of: one copy engine, and graphics, without which the driver makes no channel group at all. */
static void list_engines(u8 *info)
{
	static const struct {
		u32 facts[16];
		u32 host[2], fault[2], hosts;
		char name[16];
	} engines[] = {
		{ { ENGINE_CE0, 1, 9, 0, 15, 4, ~0U, 2, 15, 19, 0, 0x104000, 1, 0, 0x108000 }, { 0 }, { 32 }, 1, "CE0" },
		{ { ENGINE_GR0, 0, 1, 1, 64, 1, ~0U, 6, 82, 0, 0, 0x114000, 1, 0, 0x118000 }, { 1 }, { 33 }, 1, "GR0" },
	};

	put32(info + 4, ARRAY_SIZE(engines));
	memcpy(info + 12, engines, sizeof(engines));
}

static void describe_graphics(u8 *info)
{
	static const u32 facts[FACTS] = { [SUBCONTEXTS] = 64, [LEGACY_SUBCONTEXTS] = 2, [ENGINE_SUBCONTEXTS] = 64 };
	u32 i;

	for (i = 0; i < FACTS; i++) {
		put32(info + 8 * i, i);
		put32(info + 8 * i + 4, facts[i]);
	}
}

/* Size and alignment of each. */
static void describe_context_buffers(u8 *info, u32 size)
{
	u32 i;

	for (i = 0; i + 8 <= size; i += 8) {
		put32(info + i, SZ_64K);
		put32(info + i + 4, SZ_4K);
	}
}

static void describe_memory(u8 *info)
{
	info[5] = info[17] = 1;		/* corrects errors; is there */
	put32(info + 8, 50 << 20);	/* cache */
	put32(info + 20, 0x10000);	/* compressed pages, and the same as a power */
	put32(info + 24, 16);
	put32(info + 32, 15);		/* kind */
	put32(info + 36, 40);		/* caches, slices of each */
	put32(info + 40, 2);
}

/* Sizes of the buffers and of what stands beside them. */
static void describe_faults(u8 *info)
{
	put32(info, 0x20000);
	put32(info + 4, 0x1000);
	put32(info + 8, 0x20000);
	put32(info + 12, 0x1000);
}

/* What is asked for whole is often what lay on the driver's stack, so these are zeroed first. */
static bool is_blank(u32 command)
{
	static const u32 blank[] = {
		SAFE_CHANNELS, CHANNELS, CHIP, REGISTERS, PROCESSORS, DEVICES, BARS, BAR_TRUST, LINK, INTERRUPTS,
		MEMORY, FAULT_METHODS, FAULTS, POWER, SEGMENT,
	};
	u32 i;

	for (i = 0; i < ARRAY_SIZE(blank); i++)
		if (blank[i] == command)
			return true;
	return false;
}

u32 gsp_reply(u32 command, u8 *parameters, u32 size)
{
	if (is_blank(command))
		memset(parameters, 0, size);
	switch (command) {
	case TRANSFER:
		transfer(parameters);
		break;
	case CHANNELS:
		put32(parameters + 4, 2048);
		break;
	case INTERRUPTS:
		list_interrupts(parameters);
		break;
	case BARS:
		list_bars(parameters);
		break;
	case MEMORY:
		describe_memory(parameters);
		break;
	case FAULTS:
		describe_faults(parameters);
		break;
	case FAULT_METHODS:
		put32(parameters, 0x2000);
		break;
	case ENGINES:
		list_engines(parameters);
		break;
	case GRAPHICS:
		describe_graphics(parameters);
		break;
	case CONTEXT_BUFFERS:
		describe_context_buffers(parameters, size);
		break;
	case DISABLE_CHANNELS:
	case ZCULL_MODE:
	case ZCULL_BIND:
	case PM_BIND:
	case PREEMPTION_BIND:
		controls_with_clients++;
		break;
	}
	return 0;
}
