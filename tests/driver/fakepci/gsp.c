// SPDX-License-Identifier: MIT OR GPL-2.0
/*
 * The system processor of the first function, as driver 535.261.03 meets it on a Hopper: it starts, takes the driver's
 * messages out of one queue and answers in another, from gsp_replies.c where there is an answer, else with what was asked.
 *
 * With it the driver opens /dev/nvidia0: bus.c with device=0x2330 boot0=0x180000a1 boot42=0x180a1000 poke=0x200bc,0xff,
 * nvidia.ko with NVreg_RegistryDwords=RmDisableCotCmd=0x15;RMDisableScrubOnFree=1;RmRcWatchdog=0 and
 * its firmware.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/delay.h>
#include <linux/io.h>
#include <linux/kthread.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/vmalloc.h>

#include "fakepci.h"

/* Registers, and what the driver waits for in them. */
enum {
	MAILBOX_0 = 0x110040,
	MAILBOX_1 = 0x110044,
	CONFIGURATION_2 = 0x1100f4,
	ENGINE = 0x1103c0,
	PROCESSOR = 0x111388,
	INTERRUPT_LEAF = 0xb81000,
	INTERRUPT_TRIGGER = 0xb81640,
	MMU_INVALIDATE = 0xb830b0,	/* done when the highest bit is clear */

	LOCKED = 0xbadf4100,
	SUSPENDED = 0x80000000,
	START = 1,
	ACTIVE = 0x80,
};

/*
 * The queues lie in pages of memory, the first of which lists them all, itself first: then 64 pages of what the driver
 * says, and 64 of what it is told. The first page of each has the pointers.
 */
enum { QUEUE_PAGES = 64, SLOTS = 63, MESSAGE_BYTES = 48, PROGRAM_AT = 48 };

/* Functions of messages. Two of them are only notes, which need no answer. */
enum { UNLOADING = 47, STATIC_INFO = 65, FIRST_NOTE = 72, LAST_NOTE = 73, CONTROL = 76, INIT_DONE = 0x1001 };
enum { CONTROL_BYTES = 24, CONTROL_COMMAND = 2, CONTROL_STATUS = 3, CONTROL_SIZE = 4 };

struct queue {
	u32 version, size, slot_size, slots, written, flags, reader_at, slots_at;
	u32 read;		/* of the other queue */
};

struct message {
	u8 tags[32];
	u32 sum, sequence, slots, pad;
	u32 version, signature, length, function, result, result_private, number, spare;
};

struct region {
	u64 name, at, size, kind;
};

static const u64 NAME_OF_ARGUMENTS = 0x524d41524753;	/* "RMARGS" */

static struct task_struct *thread;
static u64 *pages;		/* the list; NULL while the driver has no queues */
static u32 sent, taken;
static bool is_unloading;

bool gsp_is_memory(u64 address)
{
	unsigned long pfn = address >> PAGE_SHIFT;

	return pfn_valid(pfn) && !PageReserved(pfn_to_page(pfn));
}

static void *page_of(uint queue, uint page)
{
	return phys_to_virt(pages[1 + queue * QUEUE_PAGES + page]);
}

static void *slot_of(uint queue, u32 first, u32 i)
{
	return page_of(queue, 1 + (first + i) % SLOTS);
}

/* From the arguments of the start to those of the program, and from there to those of its messages. */
static bool find_queues(u64 arguments)
{
	struct region *region;
	struct queue *queue;
	u64 at, *messages;

	if (!gsp_is_memory(arguments))
		return false;
	at = *(u64 *)phys_to_virt(arguments + PROGRAM_AT);
	if (!gsp_is_memory(at))
		return false;
	for (region = phys_to_virt(at); region->name && region->name != NAME_OF_ARGUMENTS; region++)
		if (!((uintptr_t)(region + 1) % PAGE_SIZE))
			return false;
	if (!region->name || !gsp_is_memory(region->at))
		return false;
	messages = phys_to_virt(region->at);
	if (!gsp_is_memory(messages[0]))
		return false;
	pages = phys_to_virt(messages[0]);
	queue = page_of(0, 0);
	if (pages[0] == messages[0] && queue->slot_size == PAGE_SIZE && queue->slots == SLOTS)
		return true;
	pages = NULL;
	return false;
}

/* The message that lies in the next slots. */
static void send(u32 slots)
{
	struct queue *queue = page_of(1, 0);
	struct message *message = slot_of(1, queue->written, 0);
	u32 i, at, left = DIV_ROUND_UP(MESSAGE_BYTES + message->length, 8);
	u64 sum = 0;

	message->sequence = sent++;
	message->slots = slots;
	message->sum = 0;
	for (i = 0; i < slots; i++) {
		u64 *words = slot_of(1, queue->written, i);

		for (at = 0; at < PAGE_SIZE / 8 && left; at++, left--)
			sum ^= words[at];
	}
	message->sum = (u32)sum ^ (u32)(sum >> 32);
	smp_wmb();
	WRITE_ONCE(queue->written, (queue->written + slots) % SLOTS);
}

/* A control call may be larger than a page: it is put together, filled and put back. */
static void answer_control(u32 slots)
{
	u32 first = ((struct queue *)page_of(1, 0))->written, i, *words;
	u8 *whole = vmalloc(slots * PAGE_SIZE);

	if (!whole)
		return;
	for (i = 0; i < slots; i++)
		memcpy(whole + i * PAGE_SIZE, slot_of(1, first, i), PAGE_SIZE);
	words = (u32 *)((struct message *)whole + 1);
	words[CONTROL_STATUS] = gsp_reply(words[CONTROL_COMMAND], (u8 *)words + CONTROL_BYTES, words[CONTROL_SIZE]);
	for (i = 0; i < slots; i++)
		memcpy(slot_of(1, first, i), whole + i * PAGE_SIZE, PAGE_SIZE);
	vfree(whole);
}

static void answer(u32 slots)
{
	u32 first = ((struct queue *)page_of(1, 0))->written, i;
	struct message *message = slot_of(1, first, 0);

	for (i = 0; i < slots; i++)
		memcpy(slot_of(1, first, i), slot_of(0, taken, i), PAGE_SIZE);
	message->result = message->result_private = 0;
	if (message->function == CONTROL)
		answer_control(slots);
	if (message->function == STATIC_INFO)
		gsp_describe_card((u8 *)(message + 1));
	is_unloading = message->function == UNLOADING;
	send(slots);
}

static void answer_all(void)
{
	struct queue *queue = page_of(1, 0), *from_driver = page_of(0, 0);

	while (taken != READ_ONCE(from_driver->written)) {
		struct message *message = slot_of(0, taken, 0);
		u32 slots = max(message->slots, 1U);

		if (message->function < FIRST_NOTE || message->function > LAST_NOTE)
			answer(slots);
		taken = (taken + slots) % SLOTS;
		WRITE_ONCE(queue->read, taken);
	}
}

static void open_queues(u64 arguments)
{
	struct message *message;

	sent = taken = 0;
	is_unloading = false;
	if (!find_queues(arguments)) {
		pr_info("GSP: no queues\n");
		return;
	}
	*(struct queue *)page_of(1, 0) = (struct queue){ 0, QUEUE_PAGES * PAGE_SIZE, PAGE_SIZE, SLOTS, 0, 1, 32, PAGE_SIZE, 0 };
	answer_all();
	message = page_of(1, 1);
	memset(message, 0, PAGE_SIZE);
	message->version = 0x03000000;
	message->signature = 0x43505256;
	message->length = 40;
	message->function = INIT_DONE;
	send(1);
}

static void start_processor(u8 __iomem *registers)
{
	u64 arguments = readl(registers + MAILBOX_0) | (u64)readl(registers + MAILBOX_1) << 32;

	writel(0, registers + MAILBOX_0);
	open_queues(arguments);
	writel(ACTIVE, registers + PROCESSOR);
	writel(1, registers + CONFIGURATION_2);
}

/* What was the queues' is the kernel's again as soon as the driver sees this. */
static void suspend(u8 __iomem *registers)
{
	pages = NULL;
	writel(LOCKED, registers + CONFIGURATION_2);
	writel(SUSPENDED, registers + MAILBOX_0);
}

static void send_interrupt(u8 __iomem *registers, u32 vector)
{
	writel(0, registers + INTERRUPT_TRIGGER);
	writel(BIT(vector % 32), registers + INTERRUPT_LEAF + vector / 32 * 4);
	fakepci_interrupt();
}

static void look_at_registers(u8 __iomem *registers)
{
	u32 engine = readl(registers + ENGINE), vector = readl(registers + INTERRUPT_TRIGGER);
	u32 wanted = engine & 1 ? engine & ~0x700U : (engine & ~0x700U) | 0x200;

	if (engine != wanted)
		writel(wanted, registers + ENGINE);
	if (readl(registers + PROCESSOR) == START)
		start_processor(registers);
	if (vector)
		send_interrupt(registers, vector);
	if (readl(registers + MMU_INVALIDATE) >> 31)
		writel(0, registers + MMU_INVALIDATE);
}

/*
 * It has to sleep between two polls: removing a kprobe waits until every task has slept once, and a thread that never
 * does would hold up `detach`.
 */
static int run(void *registers)
{
	/* Locked until it has started: the driver waits for that, however long it takes. */
	writel(LOCKED, registers + CONFIGURATION_2);
	while (!kthread_should_stop()) {
		look_at_registers(registers);
		if (pages)
			answer_all();
		if (pages && is_unloading)
			suspend(registers);
		usleep_range(10, 50);
	}
	iounmap(registers);
	return 0;
}

int gsp_start(void)
{
	void __iomem *registers = ioremap(fakepci_registers(), FAKEPCI_REGISTERS);

	if (!registers)
		return -ENOMEM;
	thread = kthread_run(run, registers, "fakepci-gsp");
	if (!IS_ERR(thread))
		return 0;
	iounmap(registers);
	return PTR_ERR(thread);
}

void gsp_stop(void)
{
	if (!IS_ERR_OR_NULL(thread))
		kthread_stop(thread);
}
