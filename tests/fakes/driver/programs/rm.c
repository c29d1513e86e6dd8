#include "rm.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

void rm_die(const char *what, uint32_t status)
{
	fprintf(stderr, "%s: status 0x%x, %s\n", what, status, strerror(errno));
	exit(3);
}

static int plain_ioctl(const struct rm *rm, int file, unsigned number, void *at, uint32_t size)
{
	unsigned long command = _IOC(_IOC_READ | _IOC_WRITE, 'F', number, size);

	return rm->is_raw ? (int)syscall(SYS_ioctl, file, command, at) : ioctl(file, command, at);
}

int rm_ioctl(const struct rm *rm, int file, unsigned number, void *at, uint32_t size)
{
	struct nv_xfer wrapper = { number, size, (uintptr_t)at };

	if (!rm->is_wrapped)
		return plain_ioctl(rm, file, number, at, size);
	return plain_ioctl(rm, file, NV_XFER, &wrapper, sizeof(wrapper));
}

static void must_ioctl(const struct rm *rm, unsigned number, void *at, uint32_t size)
{
	if (rm_ioctl(rm, rm->control, number, at, size) != 0)
		rm_die("ioctl", number);
}

static uint32_t alloc_short(const struct rm *rm, struct nv_alloc_535 *at, uint32_t *object)
{
	struct nv_alloc_525 old = { at->root, at->parent, at->object, at->class_number, at->params, 0, 0 };

	if (rm->branch < 535) {
		must_ioctl(rm, NV_ALLOC, &old, sizeof(old));
		*object = old.object;
		return old.status;
	}
	must_ioctl(rm, NV_ALLOC, at, sizeof(*at));
	*object = at->object;
	return at->status;
}

static uint32_t alloc_long(const struct rm *rm, const struct nv_alloc_535 *at, uint32_t *object)
{
	struct nv_alloc_long_515 first = { at->root, at->parent, at->object, at->class_number, at->params, 0, 0, 0 };
	struct nv_alloc_long_525 second = { at->root, at->parent, at->object, at->class_number, at->params, 0, 0, 0 };
	struct nv_alloc_long_535 third = { at->root, at->parent, at->object, at->class_number, at->params, 0, at->size, 0, 0, 0 };

	if (rm->branch < 525) {
		must_ioctl(rm, NV_ALLOC, &first, sizeof(first));
		*object = first.object;
		return first.status;
	}
	if (rm->branch < 535) {
		must_ioctl(rm, NV_ALLOC, &second, sizeof(second));
		*object = second.object;
		return second.status;
	}
	must_ioctl(rm, NV_ALLOC, &third, sizeof(third));
	*object = third.object;
	return third.status;
}

uint32_t rm_alloc(const struct rm *rm, uint32_t parent, uint32_t class_number, void *params, uint32_t size, uint32_t *object)
{
	struct nv_alloc_535 at = { rm->client, parent, *object, class_number, (uintptr_t)params, size, 0 };

	return rm->is_short ? alloc_short(rm, &at, object) : alloc_long(rm, &at, object);
}

uint32_t rm_control(const struct rm *rm, uint32_t object, uint32_t command, void *params, uint32_t size)
{
	struct nv_control at = { rm->client, object, command, 0, (uintptr_t)params, size, 0 };

	must_ioctl(rm, NV_CONTROL, &at, sizeof(at));
	return at.status;
}

uint32_t rm_free(const struct rm *rm, uint32_t object)
{
	struct nv_free at = { rm->client, 0, object, 0 };

	must_ioctl(rm, NV_FREE, &at, sizeof(at));
	return at.status;
}

uint32_t rm_share(const struct rm *rm, uint32_t object)
{
	struct nv_share at = { .client = rm->client, .object = object, .access = 1, .type = 1 };	/* dup, with all */

	must_ioctl(rm, NV_SHARE, &at, sizeof(at));
	return at.status;
}

uint32_t rm_dup(const struct rm *rm, uint32_t from_client, uint32_t from, uint32_t *object)
{
	struct nv_dup at = { rm->client, rm->device, *object, from_client, from, 0, 0 };

	must_ioctl(rm, NV_DUP, &at, sizeof(at));
	*object = at.object;
	return at.status;
}

static uint32_t take_heap(const struct rm *rm, uint64_t bytes, uint32_t *object)
{
	struct nv_heap at = {
		.root = rm->client, .parent = rm->device, .function = 2, .owner = NV_OWNER, .bytes = bytes, .attr = rm->attr,
	};

	must_ioctl(rm, NV_VID_HEAP, &at, sizeof(at));
	*object = at.memory;
	return at.status;
}

/* Scanlines of 64 KiB, of 16384 pixels. The driver counts in 32 bits: less than 4 GiB each. */
static uint32_t take_surface(const struct rm *rm, uint64_t bytes, uint32_t *object)
{
	struct nv_heap_surface at = {
		.root = rm->client, .parent = rm->device, .function = 1, .owner = NV_OWNER, .depth = 32, .width = 16384,
		.height = (uint32_t)(bytes >> 16), .attr = rm->attr,
	};

	must_ioctl(rm, NV_VID_HEAP, &at, sizeof(at));
	*object = at.memory;
	return at.status;
}

uint32_t rm_take(const struct rm *rm, uint64_t bytes, uint32_t *object)
{
	struct nv_memory_params params = { .owner = NV_OWNER, .bytes = bytes, .attr = rm->attr };
	uint32_t size = rm->branch < 545 ? sizeof(params) - 8 : sizeof(params);

	*object = 0;
	if (rm->is_surface)
		return take_surface(rm, bytes, object);
	if (rm->is_heap)
		return take_heap(rm, bytes, object);
	return rm_alloc(rm, rm->device, NV_VIDEO_MEMORY, &params, size, object);
}

uint32_t rm_make_channel(const struct rm *rm, uint32_t parent, uint32_t userd, uint32_t *object)
{
	struct nv_channel params = { .entries_at = 2 << 20, .entries = 64, .userd = { userd }, .engine = NV_GRAPHICS };

	return rm_alloc(rm, parent, NV_CHANNEL, &params, sizeof(params), object);
}

uint32_t rm_alloc_memory(const struct rm *rm, uint32_t class_number)
{
	struct nv_alloc_memory at = { .root = rm->client, .parent = rm->device, .class_number = class_number, .limit = 4095 };

	if (rm_ioctl(rm, rm->card, NV_ALLOC_MEMORY, &at, sizeof(at)) != 0)
		rm_die("RM_ALLOC_MEMORY", class_number);
	return at.status;
}

/* Whole version 2 lists have as many entries as the branch says, used or not. */
static uint32_t list_length(unsigned branch)
{
	if (branch >= 580)
		return 128;
	if (branch >= 560)
		return 57;
	return branch >= 545 ? 55 : 54;
}

uint32_t rm_report(const struct rm *rm, const uint32_t *indices, uint32_t *kib, uint32_t count)
{
	struct nv_fb list = { .count = count };
	struct nv_fb_v1 old = { count, (uintptr_t)list.entries };
	uint32_t status;

	for (uint32_t i = 0; i < count; i++)
		list.entries[i].index = indices[i];
	if (rm->branch < 535)
		status = rm_control(rm, rm->subdevice, NV_FB_INFO, &old, sizeof(old));
	else
		status = rm_control(rm, rm->subdevice, NV_FB_INFO_V2, &list, 4 + 8 * list_length(rm->branch));
	for (uint32_t i = 0; i < count; i++)
		kib[i] = list.entries[i].kib;
	return status;
}
