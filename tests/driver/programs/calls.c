/*
 * The driver's own calls, one after another, each with its answer. Compared between runs, so it prints nothing that changes.
 *
 *   calls VERSION [NODE..]      NODE: /dev/nvidia0 too; +NODE: without waiting for the card
 *   calls symbols NAME..        those of these names that /proc/kallsyms has, with their modules
 *   calls hold                  opens the control file and ends after a line of its input
 *   calls stress SECONDS        opens, makes a client, asks it, closes, until then or SIGTERM; says what failed
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define NV(number, type) _IOC(_IOC_READ | _IOC_WRITE, 'F', number, sizeof(type))

enum { DEVICE = 0xcaf00001, SUBDEVICE = 0xcaf00002, EVENT = 0xcaf00010, NOT_OURS = 0xc1d0ffff };
enum { UVM_ADDRESS_SHIFT = 40, MANAGED_BYTES = 2 << 20 };

struct version { uint32_t command, reply; char text[64]; };
struct card {
	uint32_t valid, domain;
	uint8_t bus, slot, function, pad;
	uint16_t vendor, device;
	uint32_t id;
	uint16_t line;
	uint64_t regs, regs_size, fb, fb_size;
	uint32_t minor;
	char name[10];
};
struct alloc { uint32_t root, parent, object, class_number; uint64_t parameters; uint32_t size, status; };
struct control { uint32_t client, object, command, flags; uint64_t parameters; uint32_t size, status; };
struct channel_list { uint32_t is_disabled, count, flags[2]; uint64_t event; uint32_t clients[64], channels[64]; };
struct release { uint32_t root, parent, object, status; };
struct dup { uint32_t client, parent, object, client_from, object_from, flags, status; };
struct memory {
	uint32_t root, parent, object, class_number, flags, pad;
	uint64_t at, limit;
	uint32_t status, pad2;
	int32_t fd;
	uint32_t pad3;
};

static volatile sig_atomic_t is_over;

static void print_answer(const char *what, int result, uint32_t status)
{
	printf("%-46s %s, status 0x%x\n", what, result ? strerror(errno) : "ok", status);
	fflush(stdout);
}

static uint32_t alloc(int fd, const char *what, struct alloc call, uint32_t *given)
{
	int result = ioctl(fd, NV(0x2b, call), &call);

	print_answer(what, result, call.status);
	if (given)
		*given = call.object;
	return call.status;
}

static void control(int fd, const char *what, uint32_t client, uint32_t command, void *at, uint32_t size)
{
	struct control call = { client, client, command, 0, (uintptr_t)at, size, 0 };
	int result = ioctl(fd, NV(0x2a, call), &call);

	print_answer(what, result, call.status);
}

/* Of a client, which has no channels: the driver itself does not look at the list. */
static void disable_channels(int fd, const char *what, uint32_t client, uint32_t named)
{
	struct channel_list list = { .is_disabled = 1, .count = 1, .clients = { named }, .channels = { DEVICE } };

	control(fd, what, client, 0x2080110b, &list, sizeof(list));
}

static void release(int fd, const char *what, uint32_t root, uint32_t object)
{
	struct release call = { root, root, object, 0 };
	int result = ioctl(fd, NV(0x29, call), &call);

	print_answer(what, result, call.status);
}

static void alloc_memory(int fd, const char *what, struct memory call)
{
	int result;

	call.fd = -1;
	result = ioctl(fd, NV(0x27, call), &call);
	print_answer(what, result, call.status);
}

static void dup_object(int fd, const char *what, struct dup call)
{
	int result = ioctl(fd, NV(0x34, call), &call);

	print_answer(what, result, call.status);
}

static void make_device(int fd, uint32_t client)
{
	uint8_t device[56] = { 0 }, sub[4] = { 0 };
	uint32_t attached[32] = { 0 }, probed[64] = { 0 }, ids[33];

	control(fd, "control GPU_GET_PROBED_IDS", client, 0x214, probed, sizeof(probed));
	printf("  probed %x %x\n", probed[0], probed[1]);
	control(fd, "control GPU_GET_ATTACHED_IDS", client, 0x201, attached, sizeof(attached));
	printf("  attached %x %x\n", attached[0], attached[1]);
	memset(ids, 0xff, sizeof(ids));
	ids[0] = probed[0];
	control(fd, "control GPU_ATTACH_IDS", client, 0x215, ids, sizeof(ids));
	alloc(fd, "alloc NV01_DEVICE_0", (struct alloc){ client, client, DEVICE, 0x80, (uintptr_t)device, sizeof(device), 0 }, NULL);
	alloc(fd, "alloc NV20_SUBDEVICE_0", (struct alloc){ client, DEVICE, SUBDEVICE, 0x2080, (uintptr_t)sub, sizeof(sub), 0 }, NULL);
}

static void try_client(int fd, const char *where)
{
	uint32_t root = 0, second = 0, build[6] = { 0 }, features = 0;
	void *page = mmap(NULL, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	uint8_t parameters[128] = { 0 };

	printf("-- %s\n", where);
	if (alloc(fd, "alloc NV01_ROOT", (struct alloc){ 0 }, &root))
		return;
	alloc(fd, "alloc NV01_ROOT_CLIENT", (struct alloc){ .class_number = 0x41 }, &second);
	control(fd, "control GET_BUILD_VERSION", root, 0x101, build, sizeof(build));
	control(fd, "control SYSTEM_GET_FEATURES", root, 0x1f0, &features, sizeof(features));
	disable_channels(fd, "control FIFO_DISABLE_CHANNELS, our client", root, second);
	disable_channels(fd, "control FIFO_DISABLE_CHANNELS, another client", root, NOT_OURS);
	alloc(fd, "alloc of an event without parent (0x79)",
	      (struct alloc){ root, root, EVENT, 0x79, (uintptr_t)parameters, 32, 0 }, NULL);
	alloc_memory(fd, "RM_ALLOC_MEMORY system (0x3e)", (struct memory){ root, root, 0xcaf00011, 0x3e, .limit = 0xffff });
	alloc_memory(fd, "RM_ALLOC_MEMORY of pages (0x71)",
		     (struct memory){ root, root, 0xcaf00012, 0x71, .at = (uintptr_t)page, .limit = 0xfffff });
	alloc_memory(fd, "RM_ALLOC_MEMORY window (0x40)", (struct memory){ root, root, 0xcaf00013, 0x40, .limit = 0xffff });
	alloc(fd, "alloc NV01_MEMORY_LOCAL_USER, parent client",
	      (struct alloc){ root, root, 0xcaf00014, 0x40, (uintptr_t)parameters, sizeof(parameters), 0 }, NULL);
	dup_object(fd, "dup of the event", (struct dup){ second, second, 0xcaf00020, root, EVENT, 0, 0 });
	dup_object(fd, "dup of the client", (struct dup){ second, second, 0xcaf00021, root, root, 0, 0 });
	make_device(fd, root);
	alloc_memory(fd, "RM_ALLOC_MEMORY system, parent device (0x3e)", (struct memory){ root, DEVICE, 0xcaf00030, 0x3e, .limit = 0xffff });
	release(fd, "free of a handle that is not there", root, 0xcaf000ff);
	release(fd, "free of the second client", second, second);
	release(fd, "free of the client", root, root);
}

static void list_cards(int fd)
{
	struct card table[32] = { 0 };
	int result = ioctl(fd, NV(200, table), table);

	print_answer("CARD_INFO", result, 0);
	for (int i = 0; i < 32; i++)
		if (table[i].valid & 0xff)
			printf("  card %d: %04x:%02x:%02x.%x %04x:%04x minor %u\n", i, table[i].domain, table[i].bus, table[i].slot,
			       table[i].function, table[i].vendor, table[i].device, table[i].minor);
}

static void check_version(int fd, const char *what, const char *text)
{
	struct version version = { '0', 0, "" };
	int result;

	snprintf(version.text, sizeof(version.text), "%s", text);
	result = ioctl(fd, NV(210, version), &version);
	print_answer(what, result, version.reply);
	printf("  driver says %s\n", version.text);
}

/* UVM is asked by numbers alone. Its managed memory lies where its offset says. */
static void try_uvm(void)
{
	struct { uint64_t flags; uint32_t status, pad; } start = { 0 };
	struct { uint64_t pageable; uint32_t status; } access = { 0 };
	uint64_t address = (uint64_t)127 << UVM_ADDRESS_SHIFT;
	int fd = open("/dev/nvidia-uvm", O_RDWR | O_CLOEXEC), result;
	char *at;

	puts("-- uvm");
	print_answer("open /dev/nvidia-uvm", fd < 0, 0);
	if (fd < 0)
		return;
	result = ioctl(fd, 0x30000001, &start);
	print_answer("UVM_INITIALIZE", result, start.status);
	result = ioctl(fd, 39, &access);
	print_answer("UVM_PAGEABLE_MEM_ACCESS", result, access.status);
	at = mmap((void *)(uintptr_t)address, MANAGED_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, (off_t)address);
	print_answer("mmap of 2 MiB", at == MAP_FAILED, 0);
	if (at == MAP_FAILED)
		return;
	at[0] = 7;
	puts("  wrote a page of managed memory");
}

static void try_node(const char *node)
{
	bool waits = node[0] != '+';
	int card = open(waits ? node : node + 1, O_RDWR | O_CLOEXEC | (waits ? 0 : O_NONBLOCK));

	print_answer(node, card < 0, 0);
	if (card >= 0)
		try_client(card, node);
}

static int try_all(const char *version, char **nodes, int count)
{
	int fd = open("/dev/nvidiactl", O_RDWR | O_CLOEXEC);

	print_answer("open /dev/nvidiactl", fd < 0, 0);
	if (fd >= 0) {
		check_version(fd, "CHECK_VERSION_STR, right", version);
		check_version(fd, "CHECK_VERSION_STR, wrong", "1.2.3");
		list_cards(fd);
		try_client(fd, "through /dev/nvidiactl");
	}
	for (int i = 0; i < count; i++)
		try_node(nodes[i]);
	try_uvm();
	return EXIT_SUCCESS;
}

/* All of /proc/kallsyms would be minutes on the machine's serial line. */
static int list_symbols(char **names, int count)
{
	FILE *file = fopen("/proc/kallsyms", "r");
	char name[512], module[256], line[1024];

	while (file && fgets(line, sizeof(line), file))
		if (sscanf(line, "%*s %*s %511s [%255[^]]]", name, module) == 2)
			for (int i = 0; i < count; i++)
				if (strcmp(name, names[i]) == 0)
					printf("%s %s\n", name, module);
	return file ? EXIT_SUCCESS : EXIT_FAILURE;
}

static double read_clock(void)
{
	struct timespec at;

	clock_gettime(CLOCK_MONOTONIC, &at);
	return (double)at.tv_sec + (double)at.tv_nsec / 1e9;
}

static long ask_client(int fd, bool is_freed)
{
	uint32_t build[6] = { 0 };
	struct alloc root = { .class_number = 0x41 };
	long wrong = ioctl(fd, NV(0x2b, root), &root) || root.status;
	struct control ask = { root.object, root.object, 0x101, 0, (uintptr_t)build, sizeof(build), 0 };
	struct release end = { root.object, root.object, root.object, 0 };

	wrong += ioctl(fd, NV(0x2a, ask), &ask) || ask.status;
	if (is_freed)
		wrong += ioctl(fd, NV(0x29, end), &end) || end.status;
	return wrong;
}

static int hold(void)
{
	int fd = open("/dev/nvidiactl", O_RDWR | O_CLOEXEC);

	puts(fd < 0 ? strerror(errno) : "open");
	fflush(stdout);
	getchar();
	return fd < 0 ? EXIT_FAILURE : EXIT_SUCCESS;
}

static void end_stress(int received)
{
	is_over = received;
}

static int stress(double seconds)
{
	double end = read_clock() + seconds;
	long rounds = 0, unopened = 0, wrong = 0;

	signal(SIGTERM, end_stress);
	while (!rounds || (!is_over && read_clock() < end)) {
		int fd = open("/dev/nvidiactl", O_RDWR | O_CLOEXEC);

		rounds++;
		unopened += fd < 0;
		if (fd < 0)
			continue;
		wrong += ask_client(fd, rounds % 2 == 0);
		close(fd);
	}
	printf("%ld rounds, %ld not opened, %ld wrong\n", rounds, unopened, wrong);
	return unopened || wrong || !rounds ? EXIT_FAILURE : EXIT_SUCCESS;
}

int main(int count, char **words)
{
	if (count > 2 && strcmp(words[1], "symbols") == 0)
		return list_symbols(words + 2, count - 2);
	if (count == 3 && strcmp(words[1], "stress") == 0)
		return stress(atof(words[2]));
	if (count == 2 && strcmp(words[1], "hold") == 0)
		return hold();
	if (count < 2)
		return 2;
	return try_all(words[1], words + 2, count - 2);
}
