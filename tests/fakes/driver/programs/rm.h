/* How a program speaks to the driver: the calls libcuda makes, through libc's ioctl or around it. */
#ifndef PROGRAMS_RM_H
#define PROGRAMS_RM_H

#include <stdbool.h>
#include <stdint.h>

#include "nv.h"

struct rm {
	const char *path;	/* of the control file */
	int (*open)(const char *path);	/* of all files; NULL: by open(2) */
	unsigned branch;	/* of the driver, which decides the shapes */
	bool is_raw;		/* by syscall(2), not by libc's function */
	bool is_wrapped;	/* every call inside XFER */
	bool is_short;		/* the short form of RM_ALLOC */
	bool is_heap;		/* memory by VID_HEAP_CONTROL */
	bool is_surface;	/* by its function for surfaces */
	uint32_t attr;
	int minor;		/* the card wanted, or -1: the first that can be opened */
	int control, card;	/* files */
	uint32_t client, device, subdevice;
};

/* Of any card, the control file in /dev and branch 580, or what RM_CONTROL and RM_BRANCH in the environment say. */
struct rm rm_plain(void);

/* Ends the program, saying which call and why, when something that must work does not. */
_Noreturn void rm_die(const char *what, uint32_t status);

int rm_ioctl(const struct rm *rm, int file, unsigned number, void *at, uint32_t size);

/* These answer the driver's status: 0 is well. */
uint32_t rm_alloc(const struct rm *rm, uint32_t parent, uint32_t class_number, void *params, uint32_t size,
		  uint32_t *object);
uint32_t rm_control(const struct rm *rm, uint32_t object, uint32_t command, void *params, uint32_t size);
uint32_t rm_free(const struct rm *rm, uint32_t object);
uint32_t rm_dup(const struct rm *rm, uint32_t from_client, uint32_t from, uint32_t *object);
uint32_t rm_share(const struct rm *rm, uint32_t object);
uint32_t rm_take(const struct rm *rm, uint64_t bytes, uint32_t *object);

/* A channel of Hopper's below a device or a channel group, with its USERD in that memory. */
uint32_t rm_make_channel(const struct rm *rm, uint32_t parent, uint32_t userd, uint32_t *object);

/* Says what cudaMalloc would. True: it was given. */
bool rm_take_aloud(const struct rm *rm, uint64_t mib, uint32_t *object);

/* RM_ALLOC_MEMORY, on the card's file: host memory, or for some a window on the card. */
uint32_t rm_alloc_memory(const struct rm *rm, uint32_t class_number);

/* In KiB, as the card says, or the shim in front of it. */
uint32_t rm_report(const struct rm *rm, const uint32_t *indices, uint32_t *kib, uint32_t count);

/* The order of a program that starts to use a GPU: control file, cards, client, device, subdevice. */
void rm_start(struct rm *rm);

/* nvidia-uvm beside the control file, opened and initialised. */
int rm_open_uvm(const struct rm *rm);

#endif
