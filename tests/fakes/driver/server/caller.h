/* The processes that call: their memory, their numbers, their descriptors, as /proc and process_vm_readv show them. */
#ifndef FAKE_CALLER_H
#define FAKE_CALLER_H

#include <sys/types.h>

#include "behaviour.h"

struct caller {
	pid_t thread;
	const char *folder;	/* where the driver's files are mounted */
	ino_t control;		/* the inode of nvidiactl there */
};

extern const struct rm_host caller_host;

#endif
