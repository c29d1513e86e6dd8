/* Which cgroup a process is in, as /proc/PID/cgroup says it: cgroup v2, v1, or both at once (hybrid). */
#ifndef CGROUP_H
#define CGROUP_H

#include <stdbool.h>
#include <stddef.h>

#define CGROUP_PATH_SIZE 4096

struct cgroup {
	/* `unified`, or the v1 hierarchy by the name of its usual folder: `memory`, `devices`, `systemd`. */
	const char *hierarchy;
	/* From that hierarchy's root: `/kubepods/..` */
	char path[CGROUP_PATH_SIZE];
};

/* False when the process is in the root everywhere, or a line is malformed: a limit needs a cgroup of its own. */
bool cgroup_parse(const char *text, size_t length, struct cgroup *cgroup);

#endif
