/* The container about to start: what the runtime says on standard input, and what its bundle says. */
#ifndef CONTAINER_H
#define CONTAINER_H

#include <stdbool.h>
#include <stddef.h>

#include "json.h"
#include "variables.h"

#define BUNDLE_PATH_SIZE 4096

/* Strings are spans of the texts they were read from, quotes and all; `at` is NULL where there was none. */
struct container {
	long pid;
	char bundle[BUNDLE_PATH_SIZE];
	struct json id;
	struct json namespace, pod, uid, name;
	bool is_limited;
	/* The runtime's annotations name a pod. */
	bool names_pod;
	/* Of a container that names no pod. */
	struct variables variables;
	/* Of such a container: where its root file system is, from the bundle or from /; empty where none is named. */
	char root[BUNDLE_PATH_SIZE];
};

/* The OCI state: pid, id and bundle. Logs and returns false when one is missing. */
bool container_read_state(struct container *container, const char *text, size_t length);

/* The bundle's config.json: is there a limit of ours, whose container is it, and what its environment says. */
bool container_read_config(struct container *container, const char *text, size_t length);

#endif
