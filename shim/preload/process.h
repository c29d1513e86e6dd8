/*
 * Everything the library knows in this process, in memory that a child of fork finds empty: the child starts over with a
 * connection of its own. A child of vfork runs in its parent's memory and is left alone.
 */
#ifndef PROCESS_H
#define PROCESS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "../core/core.h"
#include "quota.h"
#include "files.h"
#include "lock.h"

enum process_mode {
	PROCESS_NEW, /* has not met the agent */
	PROCESS_LIMITED,
	PROCESS_ASIDE, /* it has no limit: the library steps aside for its life */
	PROCESS_REFUSING, /* the layouts of the driver's version are not known: nothing is allocated */
};

struct process {
	_Atomic int pid; /* 0: not used since the memory was made or wiped */
	_Atomic uint32_t mode;
	struct lock begin, core_lock;
	struct core core;
	struct quota quota;
	struct files files;
};

/* NULL: nothing has been watched in this process, nor in the ones it was forked from. Costs one load. */
static inline struct process *process_known(void);
/* NULL: a child of vfork, or no memory. */
struct process *process_here(void);
/* What to do in this process, after waiting for the agent where that has to be. */
enum process_mode process_begin(struct process *process);

extern struct process *_Atomic process_made;

static inline struct process *process_known(void)
{
	return atomic_load_explicit(&process_made, memory_order_acquire);
}

static inline enum process_mode process_mode(struct process *process)
{
	return atomic_load_explicit(&process->mode, memory_order_acquire);
}

/* Is it the socket of the library? */
static inline bool process_owns(struct process *process, int fd)
{
	return fd >= 0 && atomic_load_explicit(&process->quota.connection.fd_and_one, memory_order_relaxed) == fd + 1;
}

#endif
