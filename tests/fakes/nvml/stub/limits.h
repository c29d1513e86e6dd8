/*
 * Memory limits of cgroups, as drivers since 615 hold them: kept in files beside the state file, so that the
 * process that sets a limit and the one that allocates need not be the same. An entry is about one directory
 * (device and inode); with the directory it is forgotten.
 */
#ifndef VRAMPACK_STUB_LIMITS_H
#define VRAMPACK_STUB_LIMITS_H

struct held {
	unsigned long long soft;
	unsigned long long hard; /* ~0: none set */
	unsigned long long used; /* what was taken since there is a limit; before it nothing is charged */
};

/* All return an nvmlReturn_t. INVALID_ARGUMENT: the path is no cgroup. */
int limits_set(const char *cgroup, const char *uuid, unsigned long long soft, unsigned long long hard);
int limits_get(const char *cgroup, const char *uuid, struct held *held);

/* Take bytes of a card for a process in that cgroup. MEMORY: over its limit. */
int limits_take(const char *cgroup, const char *uuid, unsigned long long bytes);

#endif
