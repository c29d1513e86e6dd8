/* Stands for libcuda: a library that is loaded while the program runs, and speaks to the driver by ioctl. */
#include <dlfcn.h>
#include <stdarg.h>
#include <stdint.h>
#include <sys/ioctl.h>

#include "rm.h"

enum { MIB_SHIFT = 20 };

int around_take(int is_dlsym, unsigned long mib);
int around_ioctl(int file, unsigned long request, ...);

static int (*libcs)(int file, unsigned long request, ...);

/* What rm.c calls here in place of ioctl. */
int around_ioctl(int file, unsigned long request, ...)
{
	va_list list;
	void *argument;

	va_start(list, request);
	argument = va_arg(list, void *);
	va_end(list);
	return libcs ? libcs(file, request, argument) : ioctl(file, request, argument);
}

int around_take(int is_dlsym, unsigned long mib)
{
	struct rm rm = { .path = "/dev/nvidiactl", .branch = 580, .minor = -1, .attr = NV_ATTR_64K };
	uint32_t object;

	if (is_dlsym)
		libcs = (int (*)(int, unsigned long, ...))dlsym(dlopen("libc.so.6", RTLD_NOW), "ioctl");
	rm_start(&rm);
	return rm_take(&rm, (uint64_t)mib << MIB_SHIFT, &object) == 0;
}
