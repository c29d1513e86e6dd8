/* How a program is started. */
#ifndef GUEST_SPAWN_H
#define GUEST_SPAWN_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

/* Ends of the three pipes that stay here. */
struct spawned {
	pid_t pid;
	int input, output, errors;
};

/*
 * Start what the texts say: false and errno when they say it wrongly or there is no room. What goes wrong later than the
 * fork (no such cgroup, no such program) is said by the child on its standard error, and its exit code is 127.
 */
bool spawn(char *texts, size_t length, struct spawned *spawned);

#endif
