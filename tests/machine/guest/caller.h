/* The process that makes the host's system calls, one after the other: to fork for each takes five times as long. */
#ifndef GUEST_CALLER_H
#define GUEST_CALLER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "frames.h"

struct caller {
	pid_t pid;
	int socket;		/* readable when there is an answer; -1: there is no such process */
	bool is_busy;
	uint32_t number;	/* of the call that it makes or made last */
};

/* One part of what a call answers: FRAME_OUT, or at last FRAME_ENDED. */
struct answer {
	uint32_t kind;
	uint32_t length;
	char bytes[4096];
};

/* False and errno if there is none. */
bool caller_start(struct caller *caller);

/* Begin a call with the content of a FRAME_CALL. One that is busy is left alone, and another one takes its place. */
bool caller_begin(struct caller *caller, uint32_t number, const char *content, size_t length);

/* False if there is none now. */
bool caller_take(struct caller *caller, struct answer *answer);

#endif
