// SPDX-License-Identifier: MIT OR GPL-2.0
/*
 * A PCI bus with functions that say they are NVIDIA's, for the real driver in a virtual machine without a GPU.
 *
 * Configuration space is memory of this module. The registers (BAR 0) and the windows (BAR 1, 3) are RAM that the kernel
 * was told to leave alone (memmap=SIZE$BASE): the driver maps, reads and writes it, and without gsp=1 nothing answers.
 *
 *   insmod fakepci.ko gpus=2                two functions 10de:20b5, class 3D controller, at base=0x40000000
 *   insmod fakepci.ko gpus=0 switches=1     one of class "other bridge", as an NVSwitch
 *   ... poke=OFFSET,VALUE,OFFSET,VALUE      more registers than the three that tell the chip
 *   ... gsp=1                               a GSP for the first function (gsp.c)
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/io.h>
#include <linux/module.h>
#include <linux/numa.h>
#include <linux/pci.h>
#include <linux/sizes.h>
#include <asm/pci.h>

#include "fakepci.h"

#define MAX_FUNCTIONS 8
#define BARS 6
#define FUNCTION_BYTES 0x8000000ULL	/* of one function: its three BARs */
#define MARGIN 0x1000000ULL	/* the window is smaller than what was reserved, so that it lies in it */

enum { CAP_PM = 0x60, CAP_MSI = 0x68, CAP_EXPRESS = 0x78, CLASS_3D = 0x030200, CLASS_BRIDGE = 0x068000, BOOT_42 = 0xa00 };

static ulong base = 0x40000000;
module_param(base, ulong, 0444);
static uint gpus = 1, switches;
module_param(gpus, uint, 0444);
module_param(switches, uint, 0444);
static uint device = 0x20b5, boot0 = 0x170000a1, boot42 = 0x170a1000;
module_param(device, uint, 0444);
module_param(boot0, uint, 0444);
module_param(boot42, uint, 0444);
static uint number = 0x40;
module_param(number, uint, 0444);
MODULE_PARM_DESC(number, "Of the bus (initially 0x40)");
static uint poke[64];
static int n_poke;
module_param_array(poke, uint, &n_poke, 0444);
static bool gsp;
module_param(gsp, bool, 0444);

struct function {
	u8 space[256];
	u64 size[BARS];		/* 0: none, or the upper half */
	bool is_wide[BARS];
};

static struct function functions[MAX_FUNCTIONS];
static uint n_functions;
static struct pci_bus *bus;
static struct resource window = { .name = "fakepci", .flags = IORESOURCE_MEM };
static struct resource numbers = { .name = "fakepci bus", .flags = IORESOURCE_BUS };
static struct pci_sysdata sysdata = { .node = NUMA_NO_NODE };

static struct function *find_function(unsigned int devfn)
{
	return PCI_FUNC(devfn) == 0 && PCI_SLOT(devfn) < n_functions ? &functions[PCI_SLOT(devfn)] : NULL;
}

static int read_space(struct pci_bus *unused, unsigned int devfn, int where, int size, u32 *value)
{
	struct function *function = find_function(devfn);

	*value = ~0U;
	if (!function)
		return PCIBIOS_DEVICE_NOT_FOUND;
	if (where + size > sizeof(function->space))
		return PCIBIOS_BAD_REGISTER_NUMBER;
	*value = 0;
	memcpy(value, function->space + where, size);
	return PCIBIOS_SUCCESSFUL;
}

static void write_bar(struct function *function, int bar, u32 value)
{
	u32 *at = (u32 *)(function->space + PCI_BASE_ADDRESS_0) + bar;
	bool is_upper = bar && function->is_wide[bar - 1];
	u64 size = function->size[is_upper ? bar - 1 : bar];

	if (!size)
		return;
	if (is_upper)
		*at = value & (u32)(~(size - 1) >> 32);
	else
		*at = (value & (u32)~(size - 1)) | (*at & 0xf);
}

static int write_space(struct pci_bus *unused, unsigned int devfn, int where, int size, u32 value)
{
	struct function *function = find_function(devfn);

	if (!function)
		return PCIBIOS_DEVICE_NOT_FOUND;
	if (where + size > sizeof(function->space))
		return PCIBIOS_BAD_REGISTER_NUMBER;
	if (where >= PCI_BASE_ADDRESS_0 && where < PCI_CARDBUS_CIS && size == 4)
		write_bar(function, (where - PCI_BASE_ADDRESS_0) / 4, value);
	else if (where == PCI_COMMAND || where == PCI_INTERRUPT_LINE || where == PCI_CACHE_LINE_SIZE || where >= 0x40)
		memcpy(function->space + where, &value, size);
	return PCIBIOS_SUCCESSFUL;
}

static struct pci_ops ops = { .read = read_space, .write = write_space };

static void put16(struct function *function, int where, u16 value)
{
	memcpy(function->space + where, &value, sizeof(value));
}

static void put32(struct function *function, int where, u32 value)
{
	memcpy(function->space + where, &value, sizeof(value));
}

static void add_bar(struct function *function, int bar, u64 at, u64 size, u32 flags)
{
	function->size[bar] = size;
	function->is_wide[bar] = flags & PCI_BASE_ADDRESS_MEM_TYPE_64;
	put32(function, PCI_BASE_ADDRESS_0 + 4 * bar, (u32)at | flags);
	if (function->is_wide[bar])
		put32(function, PCI_BASE_ADDRESS_0 + 4 * bar + 4, at >> 32);
}

static void add_capabilities(struct function *function)
{
	put16(function, PCI_STATUS, PCI_STATUS_CAP_LIST);
	function->space[PCI_CAPABILITY_LIST] = CAP_PM;
	put16(function, CAP_PM, CAP_MSI << 8 | PCI_CAP_ID_PM);
	put16(function, CAP_PM + PCI_PM_PMC, 3);
	put16(function, CAP_MSI, CAP_EXPRESS << 8 | PCI_CAP_ID_MSI);
	put16(function, CAP_MSI + PCI_MSI_FLAGS, PCI_MSI_FLAGS_64BIT);
	put16(function, CAP_EXPRESS, PCI_CAP_ID_EXP);
	put16(function, CAP_EXPRESS + PCI_EXP_FLAGS, 2);
	put32(function, CAP_EXPRESS + PCI_EXP_LNKCAP, 0x103);
	put16(function, CAP_EXPRESS + PCI_EXP_LNKSTA, 0x103);
}

static void add_registers(void __iomem *registers)
{
	int i;

	memset_io(registers, 0, FAKEPCI_REGISTERS);
	writel(boot0, registers);
	writel(boot42, registers + BOOT_42);
	for (i = 0; i + 1 < n_poke; i += 2)
		if (poke[i] < FAKEPCI_REGISTERS)
			writel(poke[i + 1], registers + poke[i]);
}

static int add_function(uint index, u16 id, u32 class)
{
	struct function *function = &functions[index];
	u64 at = window.start + index * FUNCTION_BYTES;
	u32 window_flags = PCI_BASE_ADDRESS_MEM_TYPE_64 | PCI_BASE_ADDRESS_MEM_PREFETCH;
	void __iomem *registers;

	put16(function, PCI_VENDOR_ID, PCI_VENDOR_ID_NVIDIA);
	put16(function, PCI_DEVICE_ID, id);
	put32(function, PCI_CLASS_REVISION, class << 8 | 0xa1);
	put16(function, PCI_SUBSYSTEM_VENDOR_ID, PCI_VENDOR_ID_NVIDIA);
	put16(function, PCI_SUBSYSTEM_ID, 0x1533);
	function->space[PCI_INTERRUPT_PIN] = 1;
	function->space[PCI_INTERRUPT_LINE] = 11;
	add_capabilities(function);
	add_bar(function, 0, at, FAKEPCI_REGISTERS, 0);
	add_bar(function, 1, at + SZ_64M, SZ_64M, window_flags);
	add_bar(function, 3, at + SZ_32M, SZ_32M, window_flags);
	registers = ioremap(at, FAKEPCI_REGISTERS);
	if (!registers)
		return -ENOMEM;
	add_registers(registers);
	iounmap(registers);
	return 0;
}

phys_addr_t fakepci_registers(void)
{
	return window.start;
}

/* What the driver wrote into the configuration space, written where it said. */
void fakepci_interrupt(void)
{
	u8 *msi = functions[0].space + CAP_MSI;
	u32 address = *(u32 *)(msi + PCI_MSI_ADDRESS_LO);
	void __iomem *target;

	if (!(msi[PCI_MSI_FLAGS] & PCI_MSI_FLAGS_ENABLE)) {
		pr_info("interrupts by message are off\n");
		return;
	}
	target = ioremap(address & PAGE_MASK, PAGE_SIZE);
	if (!target)
		return;
	writel(*(u16 *)(msi + PCI_MSI_DATA_64), (u8 __iomem *)target + (address & ~PAGE_MASK));
	iounmap(target);
}

static int scan_bus(void)
{
	LIST_HEAD(resources);

	pci_add_resource(&resources, &window);
	pci_add_resource(&resources, &numbers);
	pci_lock_rescan_remove();
	bus = pci_scan_root_bus(NULL, number, &ops, &sysdata, &resources);
	if (bus) {
		pci_bus_claim_resources(bus);
		pci_bus_add_devices(bus);
	}
	pci_unlock_rescan_remove();
	if (bus)
		return 0;
	pci_free_resource_list(&resources);
	return -ENOMEM;
}

static void remove_bus(void)
{
	pci_lock_rescan_remove();
	pci_stop_root_bus(bus);
	pci_remove_root_bus(bus);
	pci_unlock_rescan_remove();
}

static int __init fakepci_init(void)
{
	uint i;
	int error;

	if (gpus + switches > MAX_FUNCTIONS || !(gpus + switches))
		return -EINVAL;
	n_functions = gpus + switches;
	window.start = base + MARGIN;
	window.end = window.start + n_functions * FUNCTION_BYTES - 1;
	numbers.start = numbers.end = number;
	error = insert_resource(&iomem_resource, &window);
	if (error)
		return error;
	/* Of no NVSwitch that is known: the driver warns when a known one does not answer. */
	for (i = 0; i < n_functions && !error; i++)
		error = i < gpus ? add_function(i, device, CLASS_3D) : add_function(i, 1, CLASS_BRIDGE);
	if (!error)
		error = scan_bus();
	if (error)
		goto release;
	error = gsp ? gsp_start() : 0;
	if (!error)
		return 0;
	remove_bus();
release:
	remove_resource(&window);
	return error;
}

static void __exit fakepci_exit(void)
{
	gsp_stop();
	remove_bus();
	remove_resource(&window);
}

module_init(fakepci_init);
module_exit(fakepci_exit);
MODULE_DESCRIPTION("Functions of a PCI bus that say they are NVIDIA's");
MODULE_LICENSE("Dual MIT/GPL");
