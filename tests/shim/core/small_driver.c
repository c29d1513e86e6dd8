#include "small_driver.h"

#include <errno.h>
#include <string.h>

#define CALL_MOST 4096

enum status { OK = 0, BAD_POINTER = 0x3D, NO_ROOM = 0x51, UNSUPPORTED = 0x56, NOT_FOUND = 0x57, EXISTS = 0x19 };

static uint32_t get32(const unsigned char *from)
{
	uint32_t value;

	memcpy(&value, from, sizeof(value));
	return value;
}

static void put32(unsigned char *to, uint32_t value)
{
	memcpy(to, &value, sizeof(value));
}

static int find(const struct small_driver *driver, uint32_t client, uint32_t handle)
{
	for (int i = 0; handle && i < SMALL_THINGS; i++)
		if (driver->things[i].handle == handle && driver->things[i].client == client)
			return i;
	return -1;
}

/* A client belongs to the file it was made through, and is of no use in another. */
static int find_mine(const struct small_driver *driver, int file, uint32_t client, uint32_t handle)
{
	int i = find(driver, client, handle);

	return i >= 0 && driver->things[i].file == file ? i : -1;
}

/* The lowest free one, so that it comes again at once. */
static uint32_t choose(const struct small_driver *driver, uint32_t client)
{
	for (uint32_t handle = client ? 0xCAF00001 : 0xC1D00001;; handle++)
		if (find(driver, client ? client : handle, handle) < 0)
			return handle;
}

static int add(struct small_driver *driver, int file, uint32_t client, uint32_t *handle, uint32_t class, int above)
{
	if (!*handle)
		*handle = choose(driver, client);
	if (find(driver, client ? client : *handle, *handle) >= 0)
		return -1;
	for (int i = 0; i < SMALL_THINGS; i++) {
		if (driver->things[i].handle)
			continue;
		driver->things[i] = (struct small_thing){ client ? client : *handle, *handle, class, above, -1, file };
		return i;
	}
	return -1;
}

/* In pages by the attributes, and compressed in lines of 256 KiB. */
static uint64_t real_size(uint64_t bytes, uint32_t attributes, uint32_t attributes2)
{
	static const uint64_t huge[] = { 2 << 20, 2 << 20, 512 << 20, (uint64_t)256 << 30 };
	uint32_t kind = attributes >> 23 & 3;
	uint64_t page = 64 << 10;

	if (kind == 3)
		page = huge[attributes2 >> 20 & 3];
	else if (kind == 0 && bytes >= 2 << 20)
		page = 2 << 20;
	else if (attributes >> 12 & 3)
		page = 256 << 10;
	return (bytes + page - 1) / page * page;
}

static enum status make_memory(struct small_driver *driver, int file, uint32_t client, uint32_t parent,
			       uint32_t *handle, uint64_t *bytes, const uint32_t *attributes)
{
	int above = find_mine(driver, file, client, parent), thing, piece = 0;

	if (above < 0 || driver->things[above].piece >= 0 || driver->things[above].class == 0x41 || !*bytes)
		return NOT_FOUND;
	if (*bytes > (uint64_t)1 << 40)
		return NO_ROOM;
	while (piece < SMALL_PIECES && driver->piece_names[piece])
		piece++;
	if (piece == SMALL_PIECES)
		return NO_ROOM;
	thing = add(driver, file, client, handle, 0x40, above);
	if (thing < 0)
		return EXISTS;
	*bytes = real_size(*bytes, attributes[0], attributes[1]);
	driver->things[thing].piece = piece;
	driver->piece_names[piece] = 1;
	driver->piece_bytes[piece] = *bytes;
	driver->bytes += *bytes;
	driver->made++;
	if (driver->bytes > driver->most_bytes)
		driver->most_bytes = driver->bytes;
	return OK;
}

static void forget(struct small_driver *driver, int thing)
{
	int piece = driver->things[thing].piece;

	if (piece >= 0 && --driver->piece_names[piece] == 0)
		driver->bytes -= driver->piece_bytes[piece];
	driver->things[thing].handle = 0;
}

/* What hangs below something that has gone goes too, until nothing more does. */
static void forget_subtree(struct small_driver *driver, int top)
{
	bool again = true;

	forget(driver, top);
	while (again) {
		again = false;
		for (int i = 0; i < SMALL_THINGS; i++) {
			int above = driver->things[i].above;

			if (!driver->things[i].handle || above < 0 || driver->things[above].handle)
				continue;
			forget(driver, i);
			again = true;
		}
	}
}

static enum status on_alloc(struct small_driver *driver, int file, unsigned char *call)
{
	uint32_t client = get32(call), parent = get32(call + 4), handle = get32(call + 8), class = get32(call + 12);
	unsigned char memory[128];
	uint64_t pointer, bytes;
	enum status status;
	int above;

	memcpy(&pointer, call + 16, sizeof(pointer));
	if (class == 0x41 || class <= 1) {
		handle = 0;
		if (add(driver, file, 0, &handle, 0x41, -1) < 0)
			return NO_ROOM;
	} else if (class == 0x80 || class == 0x2080) {
		above = find_mine(driver, file, client, parent);
		if (above < 0 || driver->things[above].class != (class == 0x80 ? 0x41u : 0x80u))
			return NOT_FOUND;
		if (add(driver, file, client, &handle, class, above) < 0)
			return EXISTS;
	} else if (class == 0x40) {
		if (!driver->copy_in(memory, pointer, sizeof(memory)))
			return BAD_POINTER;
		memcpy(&bytes, memory + 64, sizeof(bytes));
		status = make_memory(driver, file, client, parent, &handle, &bytes,
				     (uint32_t[]){ get32(memory + 24), get32(memory + 28) });
		if (status)
			return status;
		memcpy(memory + 64, &bytes, sizeof(bytes));
		driver->copy_out(pointer, memory, sizeof(memory));
	} else {
		return UNSUPPORTED;
	}
	put32(call + 8, handle);
	return OK;
}

static enum status on_free(struct small_driver *driver, int file, uint32_t client, uint32_t handle)
{
	int thing = find_mine(driver, file, client, handle);

	if (thing < 0)
		return NOT_FOUND;
	forget_subtree(driver, thing);
	return OK;
}

static enum status on_heap(struct small_driver *driver, int file, unsigned char *call)
{
	uint32_t client = get32(call), parent = get32(call + 4), function = get32(call + 8), handle = get32(call + 44);
	unsigned char *size = call + (function == 2 ? 88 : 80);
	uint32_t attributes2 = get32(call + (function == 2 ? 144 : 136));
	enum status status;
	uint64_t bytes;

	if (function == 3)
		return on_free(driver, file, client, handle);
	if (function != 2 && function != 14)
		return UNSUPPORTED;
	if (get32(call + 52) & 0x80000 || get32(call + 56) & 3u << 25 || attributes2 & 1u << 24)
		return UNSUPPORTED;
	memcpy(&bytes, size, sizeof(bytes));
	status = make_memory(driver, file, client, parent, &handle, &bytes,
			     (uint32_t[]){ get32(call + 56), attributes2 });
	if (status)
		return status;
	memcpy(size, &bytes, sizeof(bytes));
	put32(call + 44, handle);
	return OK;
}

static enum status on_dup(struct small_driver *driver, int file, unsigned char *call)
{
	uint32_t client = get32(call), handle = get32(call + 8);
	int above = find_mine(driver, file, client, get32(call + 4));
	int source = find(driver, get32(call + 12), get32(call + 16)), thing;

	if (above < 0 || source < 0 || driver->things[source].piece < 0 || driver->things[above].piece >= 0)
		return NOT_FOUND;
	thing = add(driver, file, client, &handle, 0x40, above);
	if (thing < 0)
		return EXISTS;
	driver->things[thing].piece = driver->things[source].piece;
	driver->piece_names[driver->things[source].piece]++;
	put32(call + 8, handle);
	return OK;
}

static long act(struct small_driver *driver, int file, uint32_t number, size_t size, unsigned char *call)
{
	if (number == 0x2B && (size == 32 || size == 48))
		put32(call + (size == 32 ? 28 : 40), on_alloc(driver, file, call));
	else if (number == 0x29 && size == 16)
		put32(call + 12, on_free(driver, file, get32(call), get32(call + 8)));
	else if (number == 0x4A && size == 184)
		put32(call + 20, on_heap(driver, file, call));
	else if (number == 0x34 && size == 28)
		put32(call + 24, on_dup(driver, file, call));
	else if (number == 0x2A && size == 32)
		put32(call + 28, OK);
	else if (number != 200)
		return -EINVAL;
	return 0;
}

long small_ioctl(struct small_driver *driver, int file, uint32_t request, uint64_t argument)
{
	uint32_t number = request & 0xFF, size = request >> 16 & 0x3FFF;
	unsigned char call[CALL_MOST];
	long result;

	if (number == 211) {
		if (size != 16)
			return -EINVAL;
		if (!driver->copy_in(call, argument, size))
			return -EFAULT;
		number = get32(call);
		size = get32(call + 4);
		memcpy(&argument, call + 8, sizeof(argument));
	}
	if (size > sizeof(call))
		return -EINVAL;
	if (!driver->copy_in(call, argument, size))
		return -EFAULT;
	pthread_mutex_lock(&driver->mutex);
	result = act(driver, file, number, size, call);
	pthread_mutex_unlock(&driver->mutex);
	return driver->copy_out(argument, call, size) ? result : -EFAULT;
}

void small_close(struct small_driver *driver, int file)
{
	pthread_mutex_lock(&driver->mutex);
	for (int i = 0; i < SMALL_THINGS; i++)
		if (driver->things[i].handle && driver->things[i].file == file && driver->things[i].above < 0)
			forget_subtree(driver, i);
	pthread_mutex_unlock(&driver->mutex);
}

void small_begin(struct small_driver *driver)
{
	*driver = (struct small_driver){ .mutex = PTHREAD_MUTEX_INITIALIZER };
}
