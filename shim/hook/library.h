/* The agent's library in a container that is about to start, where no kubelet has mounted it. */
#ifndef LIBRARY_H
#define LIBRARY_H

#include <stdbool.h>

#include "container.h"

/*
 * Bind `folder` of the host, read-only, to the same path of the container, and its `ld.so.preload` to
 * /etc/ld.so.preload, in the container's own mount namespace: the root file system is mounted there and not yet
 * read-only, and nothing of the container runs. What is missing on the way is made. Nothing is followed or covered on
 * the way: no symbolic link, no volume. Logs and returns false; then the container must not start.
 *
 * Afterwards this process is in that namespace.
 */
bool library_mount(const char *folder, const struct container *container);

#endif
