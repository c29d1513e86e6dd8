/* A process that makes the host's system calls, one after another: forking for each would take five times as long. */
#ifndef GUEST_CALLER_H
#define GUEST_CALLER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "frames.h"

struct caller {
	pid_t pid;
	int socket;		/* readable when there is a result; -1: no process */
	bool is_busy;
	uint32_t number;	/* of the current call, or of the last one */
};

enum {
	ANSWER_MOST = 4096,	/* bytes of one part */
};

/* A part of the result: the kind is FRAME_OUT, or FRAME_ENDED for the last part. */
struct answer {
	uint32_t kind;
	uint32_t length;
	char bytes[ANSWER_MOST];
};

/* Returns false and sets errno if it cannot be started. */
bool caller_start(struct caller *caller);

/* Begins a call with the content of a FRAME_CALL. A process that is still busy with another call is replaced. */
bool caller_begin(struct caller *caller, uint32_t number, const char *content, size_t length);

/* Returns false if no part can be read now. */
bool caller_receive(struct caller *caller, struct answer *answer);

#endif
