/*
 * Which descriptors of this process are control files, and which of them are one open file: after dup(2) the driver keeps
 * everything until the last of them is closed, and so does the quota.
 */
#ifndef FILES_H
#define FILES_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "../core/core.h"
#include "lock.h"

#define FILES_DESCRIPTORS (1 << 20) /* the kernel's own default bound, fs.nr_open; memory is used where one is open */
#define FILES_OPEN 1024 /* control files at once: CUDA opens a few */

struct open_file {
	struct core_file core;
	int fd; /* one of its descriptors */
	uint32_t descriptors; /* that are known */
	uint32_t calls; /* that are under way */
	bool is_used;
};

struct files {
	struct lock lock;
	int highest_fd;
	_Atomic uint32_t number_of[FILES_DESCRIPTORS]; /* place in `open` + 1, by descriptor; 0: not a control file */
	struct core_cards cards;
	struct open_file open[FILES_OPEN];
};

/* 0: not known, whether it is a control file or not. */
static inline uint32_t files_number(struct files *files, int fd)
{
	if (fd < 0 || fd >= FILES_DESCRIPTORS)
		return 0;
	return atomic_load_explicit(&files->number_of[fd], memory_order_relaxed);
}

/* Is it /dev/nvidiactl or a card's file? Asks the kernel. */
bool files_is_drivers(int fd);
/* Is it /dev/nvidia-uvm? */
bool files_is_uvm(int fd);
/* The open file behind the descriptor, from now on known. NULL: there are too many. */
struct open_file *files_enter(struct files *files, int fd, int pid);
/* True: no descriptor or call uses it any more; the caller releases it, then calls files_forget. */
bool files_leave(struct files *files, struct open_file *file);
void files_forget(struct files *files, struct open_file *file);
/* Before close(2): takes the descriptor from its open file. Returns that file, entered; NULL when it was not known. */
struct open_file *files_detach(struct files *files, int fd, int pid);

#endif
