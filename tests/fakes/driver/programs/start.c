#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/types.h>

#include "rm.h"

struct rm rm_plain(void)
{
	const char *branch = getenv("RM_BRANCH"), *path = getenv("RM_CONTROL");

	return (struct rm){
		.path = path ? path : "/dev/nvidiactl", .branch = branch ? (unsigned)atoi(branch) : 580, .minor = -1, .attr = NV_ATTR_64K,
	};
}

static int open_file(const struct rm *rm, const char *path)
{
	return rm->open ? rm->open(path) : open(path, O_RDWR | O_CLOEXEC);
}

/* The others lie where nvidiactl lies. */
static int open_beside(const struct rm *rm, const char *name)
{
	const char *slash = strrchr(rm->path, '/');
	char path[512];

	snprintf(path, sizeof(path), "%.*s%s", slash ? (int)(slash - rm->path) + 1 : 0, rm->path, name);
	return open_file(rm, path);
}

static int open_card(const struct rm *rm, uint32_t minor)
{
	char name[32];

	snprintf(name, sizeof(name), "nvidia%u", minor);
	return open_beside(rm, name);
}

int rm_open_uvm(const struct rm *rm)
{
	struct nv_uvm_initialize start = { 0 };
	int file = open_beside(rm, "nvidia-uvm");

	if (file < 0 || ioctl(file, NV_UVM_INITIALIZE, &start) != 0 || start.status != 0)
		rm_die("UVM_INITIALIZE", start.status);
	return file;
}

/* The first card whose file this program may open is its device 0, as in a container that was given one. */
static uint32_t pick_card(struct rm *rm, const struct nv_card *cards)
{
	for (int i = 0; i < NV_CARDS && cards[i].valid; i++) {
		if (rm->minor >= 0 && cards[i].minor != (uint32_t)rm->minor)
			continue;
		rm->card = open_card(rm, cards[i].minor);
		if (rm->card >= 0)
			return cards[i].gpu_id;
	}
	rm_die("no card that can be opened", 0);
}

static uint32_t instance_of(const struct rm *rm, uint32_t gpu_id)
{
	struct nv_id_info info = { .gpu_id = gpu_id };
	uint32_t status = rm_control(rm, rm->client, NV_GPU_ID_INFO_V2, &info, sizeof(info));

	if (status != 0)
		rm_die("GPU_GET_ID_INFO_V2", status);
	return info.instance;
}

static void must_alloc(const struct rm *rm, uint32_t parent, uint32_t class_number, void *params, uint32_t size,
		       uint32_t *object)
{
	uint32_t status = rm_alloc(rm, parent, class_number, params, size, object);

	if (status != 0)
		rm_die("RM_ALLOC", status);
}

void rm_start(struct rm *rm)
{
	struct nv_card cards[NV_CARDS] = { 0 };
	struct nv_device device = { 0 };
	uint32_t subdevice = 0, gpu_id;

	rm->control = open_file(rm, rm->path);
	if (rm->control < 0)
		rm_die(rm->path, 0);
	if (rm_ioctl(rm, rm->control, NV_CARD_INFO, cards, sizeof(cards)) != 0)
		rm_die("CARD_INFO", 0);
	gpu_id = pick_card(rm, cards);
	if (rm_ioctl(rm, rm->card, NV_REGISTER_FD, &rm->control, sizeof(rm->control)) != 0)
		rm_die("REGISTER_FD", 0);
	must_alloc(rm, 0, NV_CLIENT, NULL, 0, &rm->client);
	device.device_id = instance_of(rm, gpu_id);
	must_alloc(rm, rm->client, NV_DEVICE, &device, sizeof(device), &rm->device);
	must_alloc(rm, rm->device, NV_SUBDEVICE, &subdevice, sizeof(subdevice), &rm->subdevice);
}

bool rm_take_aloud(const struct rm *rm, uint64_t mib, uint32_t *object)
{
	uint32_t status = rm_take(rm, mib << 20, object);

	if (status == 0)
		printf("allocated %llu MiB\n", (unsigned long long)mib);
	else if (status == NV_NO_MEMORY)
		puts("error 2: cudaErrorMemoryAllocation");
	else
		printf("error 999: cudaErrorUnknown (status 0x%x)\n", status);
	return status == 0;
}
