/* What the agent is asked: one line of JSON about a container. `vrampack/agent/limits/hook_server.py` reads it. */
#ifndef QUESTION_H
#define QUESTION_H

#include <stdbool.h>

#include "buffer.h"
#include "cgroup.h"
#include "container.h"

/*
 * Version 1 where the runtime's annotations name a pod, without its environment. Version 2 where they name none, with
 * the environment: an agent that only knows version 1 refuses it, and such a container could not have a limit from
 * it. Logs and returns false when the line does not fit.
 */
bool question_write(struct buffer *buffer, const struct container *container, const struct cgroup *cgroup);

#endif
