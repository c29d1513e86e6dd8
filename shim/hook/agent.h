/* One question to the node agent over its unix socket: one line of JSON there, one line back. */
#ifndef AGENT_H
#define AGENT_H

#include <stdbool.h>
#include <stddef.h>

struct agent {
	const char *socket_path;
	long deadline;
	/* Where the agent may be missing: do not wait for it. */
	bool is_optional;
};

enum agent_answer { AGENT_YES, AGENT_NO, AGENT_ABSENT };

#define MOUNT_SIZE 1024

/*
 * Logs to standard error why the answer is no. After a yes `mount` is a folder to mount into the container, or empty.
 */
enum agent_answer agent_ask(const struct agent *agent, const char *line, size_t length, char mount[MOUNT_SIZE]);

#endif
