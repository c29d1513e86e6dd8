/* File systems, device nodes and cgroups of the virtual machine. */
#ifndef GUEST_FOLDERS_H
#define GUEST_FOLDERS_H

#include <stdbool.h>

/* Mounts and creates everything. `is_old`: cgroup v1, with one hierarchy for each of a few controllers. */
bool folders_make(bool is_old);

/* Moves the caller into this cgroup of every hierarchy; creates the cgroup if it is missing. */
bool folders_enter(const char *cgroup);

/* Writes the text to the file with one write(2). */
bool folders_write(const char *path, const char *text);

#endif
