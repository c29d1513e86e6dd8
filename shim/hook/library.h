/* Mounts the agent's library into a container that is about to start, where there is no kubelet to do it. */
#ifndef LIBRARY_H
#define LIBRARY_H

#include <stdbool.h>

#include "container.h"

/*
 * Bind `folder` of the host, read-only, to the same path of the container, and its `ld.so.preload` to
 * /etc/ld.so.preload, in the container's own mount namespace: the root file system is mounted there and not yet
 * read-only, and nothing of the container runs. Missing folders on the way are created; symbolic links are not
 * followed, and volumes not covered. On failure it logs and returns false; then the container must not start.
 *
 * Afterwards this process is in that namespace.
 */
bool library_mount(const char *folder, const struct container *container);

#endif
