/* The environment that limits a container where there is no Kubernetes: found in a bundle, and passed on unchanged. */
#ifndef VARIABLES_H
#define VARIABLES_H

#include <stdbool.h>
#include <stddef.h>

#include "json.h"

/* `vrampack/agent/host/environment.py` reads these and no others. */
#define VARIABLES(X) \
	X("ALIYUN_COM_GPU_MEM_CONTAINER=") \
	X("ALIYUN_COM_GPU_MEM_DEV=") \
	X("ALIYUN_COM_GPU_VISIBLE_DEVICES=") \
	X("ALIYUN_COM_GPU_SCHD_WEIGHT=") \
	X("CGPU_DISABLE=")

#define ONE(name) +1
enum { VARIABLES_COUNT = VARIABLES(ONE) };
#undef ONE

#define VARIABLE_SIZE 2048 /* as JSON; 32 UUIDs of cards with commas are 1312 bytes */

/* The entries `"NAME=value"` of each; `at` is NULL where there is none, or an empty one. */
struct variables {
	struct json entries[VARIABLES_COUNT];
};

/* Reads a process's environment. Logs and returns false when one is set twice or is too long. */
bool variables_read(struct variables *variables, struct json env);

#endif
