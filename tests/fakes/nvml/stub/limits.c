#include "limits.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "nvml.h"
#include "state.h"

enum { MAX_ENTRIES = 1024 };

struct entry {
	char uuid[UUID_LENGTH];
	unsigned long long device;
	unsigned long long inode;
	struct held held;
	char cgroup[1024];
};

struct book {
	struct entry entries[MAX_ENTRIES];
	size_t count;
};

static int is_cgroup(const char *path, struct stat *stat_of)
{
	char procs[4096];

	if (path[0] != '/' || stat(path, stat_of) || !S_ISDIR(stat_of->st_mode))
		return 0;
	snprintf(procs, sizeof(procs), "%s/cgroup.procs", path);
	return !access(procs, F_OK);
}

static int is_there(const struct entry *entry)
{
	struct stat now;

	return is_cgroup(entry->cgroup, &now) && now.st_dev == entry->device && now.st_ino == entry->inode;
}

/* Waits until the lock is free; -1 when the folder cannot be written. */
static int lock(void)
{
	char path[4096];
	int fd;

	state_path(path, sizeof(path), ".lock");
	fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	if (fd >= 0 && flock(fd, LOCK_EX)) {
		close(fd);
		return -1;
	}
	return fd;
}

static void read_book(struct book *book)
{
	char path[4096], line[2048];
	FILE *file;

	book->count = 0;
	state_path(path, sizeof(path), ".limits");
	file = fopen(path, "re");
	if (!file)
		return;
	while (book->count < MAX_ENTRIES && fgets(line, sizeof(line), file)) {
		struct entry *entry = &book->entries[book->count];

		if (sscanf(line, "%95s %llu %llu %llu %llu %llu %1023[^\n]", entry->uuid, &entry->held.soft,
			   &entry->held.hard, &entry->held.used, &entry->device, &entry->inode, entry->cgroup) == 7 &&
		    is_there(entry))
			book->count++;
	}
	fclose(file);
}

static int write_book(const struct book *book)
{
	char path[4096], fresh[4096];
	FILE *file;

	state_path(path, sizeof(path), ".limits");
	state_path(fresh, sizeof(fresh), ".limits.new");
	file = fopen(fresh, "we");
	if (!file)
		return NVML_ERROR_OPERATING_SYSTEM;
	for (size_t at = 0; at < book->count; at++) {
		const struct entry *entry = &book->entries[at];

		fprintf(file, "%s %llu %llu %llu %llu %llu %s\n", entry->uuid, entry->held.soft, entry->held.hard,
			entry->held.used, entry->device, entry->inode, entry->cgroup);
	}
	if (fclose(file) || rename(fresh, path))
		return NVML_ERROR_OPERATING_SYSTEM;
	return NVML_SUCCESS;
}

static struct entry *find(struct book *book, const struct stat *cgroup, const char *uuid)
{
	for (size_t at = 0; at < book->count; at++) {
		struct entry *entry = &book->entries[at];

		if (entry->device == cgroup->st_dev && entry->inode == cgroup->st_ino && !strcmp(entry->uuid, uuid))
			return entry;
	}
	return NULL;
}

static struct entry *add(struct book *book, const char *cgroup, const struct stat *stat_of, const char *uuid)
{
	struct entry *entry;

	if (book->count == MAX_ENTRIES)
		return NULL;
	entry = &book->entries[book->count++];
	memset(entry, 0, sizeof(*entry));
	snprintf(entry->uuid, sizeof(entry->uuid), "%s", uuid);
	snprintf(entry->cgroup, sizeof(entry->cgroup), "%s", cgroup);
	entry->device = stat_of->st_dev;
	entry->inode = stat_of->st_ino;
	return entry;
}

static int set_locked(const char *cgroup, const char *uuid, unsigned long long soft, unsigned long long hard)
{
	static struct book book; /* under the lock of this process and the file's */
	struct entry *entry;
	struct stat stat_of;

	if (!is_cgroup(cgroup, &stat_of))
		return NVML_ERROR_INVALID_ARGUMENT;
	read_book(&book);
	entry = find(&book, &stat_of, uuid);
	if (!entry)
		entry = add(&book, cgroup, &stat_of, uuid);
	if (!entry)
		return NVML_ERROR_INSUFFICIENT_RESOURCES;
	if (hard < entry->held.used)
		return NVML_ERROR_INVALID_ARGUMENT; /* lowering below present use is refused */
	entry->held.soft = soft;
	entry->held.hard = hard;
	return write_book(&book);
}

static int get_locked(const char *cgroup, const char *uuid, struct held *held)
{
	static struct book book;
	struct entry *entry;
	struct stat stat_of;

	if (!is_cgroup(cgroup, &stat_of))
		return NVML_ERROR_INVALID_ARGUMENT;
	read_book(&book);
	entry = find(&book, &stat_of, uuid);
	*held = entry ? entry->held : (struct held){.hard = ~0ULL};
	return NVML_SUCCESS;
}

static int take_locked(const char *cgroup, const char *uuid, unsigned long long bytes)
{
	static struct book book;
	struct entry *entry;
	struct stat stat_of;

	if (!is_cgroup(cgroup, &stat_of))
		return NVML_ERROR_INVALID_ARGUMENT;
	read_book(&book);
	entry = find(&book, &stat_of, uuid);
	if (!entry)
		return NVML_SUCCESS;
	if (bytes > entry->held.hard || entry->held.used > entry->held.hard - bytes)
		return NVML_ERROR_MEMORY;
	entry->held.used += bytes;
	return write_book(&book);
}

int limits_set(const char *cgroup, const char *uuid, unsigned long long soft, unsigned long long hard)
{
	int fd = lock(), ret;

	if (fd < 0)
		return NVML_ERROR_OPERATING_SYSTEM;
	ret = set_locked(cgroup, uuid, soft, hard);
	close(fd);
	return ret;
}

int limits_get(const char *cgroup, const char *uuid, struct held *held)
{
	int fd = lock(), ret;

	if (fd < 0)
		return NVML_ERROR_OPERATING_SYSTEM;
	ret = get_locked(cgroup, uuid, held);
	close(fd);
	return ret;
}

int limits_take(const char *cgroup, const char *uuid, unsigned long long bytes)
{
	int fd = lock(), ret;

	if (fd < 0)
		return NVML_ERROR_OPERATING_SYSTEM;
	ret = take_locked(cgroup, uuid, bytes);
	close(fd);
	return ret;
}
