#include "caller.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include "requests.h"

enum { ADMIN_BIT = 21 };	/* CAP_SYS_ADMIN */

static void *take(size_t bytes)
{
	return calloc(1, bytes);
}

static const struct caller *caller_of(const struct rm_caller *caller)
{
	return caller->context;
}

static bool read_memory(const struct rm_caller *caller, void *to, uint64_t from, size_t bytes)
{
	struct iovec here = { to, bytes }, there = { (void *)(uintptr_t)from, bytes };

	return !bytes || process_vm_readv(caller_of(caller)->thread, &here, 1, &there, 1, 0) == (ssize_t)bytes;
}

static bool write_memory(const struct rm_caller *caller, uint64_t to, const void *from, size_t bytes)
{
	struct iovec here = { (void *)(uintptr_t)from, bytes }, there = { (void *)(uintptr_t)to, bytes };

	return !bytes || process_vm_writev(caller_of(caller)->thread, &here, 1, &there, 1, 0) == (ssize_t)bytes;
}

/* One line of /proc/THREAD/status, as a number. */
static unsigned long long status_of(const struct rm_caller *caller, const char *format)
{
	unsigned long long value = 0;
	char path[64], line[256];
	FILE *file;

	snprintf(path, sizeof(path), "/proc/%d/status", caller_of(caller)->thread);
	file = fopen(path, "re");
	if (!file)
		return 0;
	while (fgets(line, sizeof(line), file) && sscanf(line, format, &value) != 1)
		;
	fclose(file);
	return value;
}

static uint32_t process(const struct rm_caller *caller)
{
	return (uint32_t)status_of(caller, "Tgid: %llu");
}

static bool is_admin(const struct rm_caller *caller)
{
	return status_of(caller, "CapEff: %llx") >> ADMIN_BIT & 1;
}

static bool is_control(const struct rm_caller *caller, int32_t descriptor)
{
	struct stat mounted, file;
	char path[64];

	snprintf(path, sizeof(path), "/proc/%d/fd/%d", caller_of(caller)->thread, descriptor);
	return stat(caller_of(caller)->folder, &mounted) == 0 && stat(path, &file) == 0
	       && file.st_dev == mounted.st_dev && file.st_ino == caller_of(caller)->control;
}

/*
 * The kernel shows which file a descriptor is of, not which open file: a duplicate of it in this process is asked itself. Its
 * answer comes from the thread that reads requests.
 */
static struct rm_file *ask(int file)
{
	struct rm_file *found = request_ask(file);

	close(file);
	return found;
}

static struct rm_file *take_control(const struct rm_caller *caller, int32_t descriptor, void **kept)
{
	int task, file = -1;

	*kept = NULL;
	if (!is_control(caller, descriptor))
		return NULL;
	task = (int)syscall(SYS_pidfd_open, process(caller), 0);
	if (task >= 0) {
		file = (int)syscall(SYS_pidfd_getfd, task, descriptor, 0);
		close(task);
	}
	return file >= 0 ? ask(file) : NULL;
}

/* Its release would come by the thread that serves this call: it cannot go meanwhile. */
static void give_control(void *unused)
{
	(void)unused;
}

const struct rm_host caller_host = {
	.take = take,
	.give = free,
	.read = read_memory,
	.read_parameters = read_memory,
	.write = write_memory,
	.process = process,
	.is_admin = is_admin,
	.is_control = is_control,
	.take_control = take_control,
	.give_control = give_control,
};
