/* What a machine's programs find: file systems, device nodes, cgroups. */
#ifndef GUEST_FOLDERS_H
#define GUEST_FOLDERS_H

#include <stdbool.h>

/* Everything mounted and made; `is_old`: cgroups of version 1, a tree for each of a few controllers. */
bool folders_make(bool is_old);

/* The caller goes into that cgroup, made if it is not there, in every tree. */
bool folders_enter(const char *cgroup);

/* One write(2) of that text into that file. */
bool folders_say(const char *path, const char *text);

#endif
