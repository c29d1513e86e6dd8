#include "files.h"

#include <asm-generic/errno.h>

#include "memory.h"
#include "syscalls.h"

#define LINK_SIZE 64
#define DRIVER_MAJOR 195
#define CONTROL_PATH "/dev/nvidiactl"
#define CARD_PATH "/dev/nvidia"
#define UVM_PATH "/dev/nvidia-uvm"

/* What /proc/self/fd says of it, as text; empty when it says nothing that fits. */
static void link_of(int fd, char *to)
{
	char path[LINK_SIZE] = "/proc/self/fd/", digits[12];
	size_t used = sizeof("/proc/self/fd/") - 1, count = 0;
	long length;

	do
		digits[count++] = (char)('0' + fd % 10);
	while ((fd /= 10) > 0);
	while (count > 0)
		path[used++] = digits[--count];
	path[used] = '\0';
	length = sys_readlink(path, to, LINK_SIZE - 1);
	to[length > 0 ? length : 0] = '\0';
}

static const char *after(const char *text, const char *start)
{
	while (*start)
		if (*text++ != *start++)
			return NULL;
	return text;
}

static bool is_path(const char *text, const char *path)
{
	const char *rest = after(text, path);

	return rest && !*rest;
}

static bool is_card_path(const char *text)
{
	const char *rest = after(text, CARD_PATH);

	return rest && *rest >= '0' && *rest <= '9';
}

bool files_is_drivers(int fd)
{
	char text[LINK_SIZE];
	struct stat found = { 0 };

	if (fd < 0 || sys_fstat(fd, &found) < 0)
		return false;
	if ((found.st_mode & SYS_S_IFMT) == SYS_S_IFCHR)
		return (found.st_rdev >> 8 & 0xFFF) == DRIVER_MAJOR;
	/* A driver that a file system simulates has no device number. */
	if ((found.st_mode & SYS_S_IFMT) != SYS_S_IFREG)
		return false;
	link_of(fd, text);
	return is_path(text, CONTROL_PATH) || is_card_path(text);
}

bool files_is_uvm(int fd)
{
	char text[LINK_SIZE];

	link_of(fd, text);
	return is_path(text, UVM_PATH);
}

static void set_number(struct files *files, int fd, uint32_t number)
{
	atomic_store_explicit(&files->number_of[fd], number, memory_order_relaxed);
	if (fd > files->highest_fd)
		files->highest_fd = fd;
}

static uint32_t number_of(struct files *files, const struct open_file *file)
{
	return (uint32_t)(file - files->open) + 1;
}

static void add(struct files *files, struct open_file *file, int fd)
{
	set_number(files, fd, number_of(files, file));
	file->fd = fd;
	file->descriptors++;
}

/*
 * Are they descriptors of one open file? Where the kernel may not be asked (kcmp under a seccomp profile) all that are open
 * on one file of /dev count as one: their memory is then kept too long, never too short.
 */
static bool is_one_file(int fd, int other_fd, int pid)
{
	struct stat found = { 0 }, other = { 0 };
	long answer = sys_kcmp_file(pid, fd, other_fd);

	if (answer != -EPERM && answer != -ENOSYS)
		return answer == 0;
	return sys_fstat(fd, &found) == 0 && sys_fstat(other_fd, &other) == 0 && found.st_dev == other.st_dev &&
	       found.st_ino == other.st_ino;
}

static struct open_file *find_twin(struct files *files, int fd, int pid)
{
	for (uint32_t i = 0; i < FILES_OPEN; i++) {
		struct open_file *file = &files->open[i];

		if (file->is_used && file->descriptors && is_one_file(fd, file->fd, pid))
			return file;
	}
	return NULL;
}

static struct open_file *find_free(struct files *files, int pid)
{
	for (uint32_t i = 0; i < FILES_OPEN; i++) {
		struct open_file *file = &files->open[i];

		if (file->is_used)
			continue;
		memset(file, 0, sizeof(*file));
		file->core.owner = files;
		file->core.cards = &files->cards;
		file->core.pid = pid;
		file->is_used = true;
		return file;
	}
	return NULL;
}

struct open_file *files_enter(struct files *files, int fd, int pid)
{
	struct open_file *file = NULL;
	uint32_t number;

	if (fd < 0 || fd >= FILES_DESCRIPTORS)
		return NULL;
	lock_acquire(&files->lock);
	number = files_number(files, fd);
	if (number) {
		file = &files->open[number - 1];
	} else {
		file = find_twin(files, fd, pid);
		if (!file)
			file = find_free(files, pid);
		if (file)
			add(files, file, fd);
	}
	if (file)
		file->calls++;
	lock_release(&files->lock);
	return file;
}

bool files_leave(struct files *files, struct open_file *file)
{
	bool is_last;

	lock_acquire(&files->lock);
	file->calls--;
	is_last = file->calls == 0 && file->descriptors == 0;
	lock_release(&files->lock);
	return is_last;
}

void files_forget(struct files *files, struct open_file *file)
{
	lock_acquire(&files->lock);
	file->is_used = false;
	lock_release(&files->lock);
}

static int number_in(const char *name)
{
	int number = 0;

	for (; *name >= '0' && *name <= '9'; name++)
		number = number * 10 + *name - '0';
	return *name ? -1 : number;
}

static bool is_twin(struct files *files, int candidate, int fd, int pid)
{
	if (candidate < 0 || candidate == fd || candidate >= FILES_DESCRIPTORS || files_number(files, candidate))
		return false;
	return is_one_file(candidate, fd, pid);
}

/* A duplicate that has not been used yet. -1: there is none. */
static int find_duplicate(struct files *files, int fd, int pid)
{
	char entries[2048] __attribute__((aligned(8))) = { 0 };
	long folder = sys_open_folder("/proc/self/fd"), count;
	int found = -1;

	if (folder < 0)
		return -1;
	while (found < 0 && (count = sys_getdents((int)folder, entries, sizeof(entries))) > 0) {
		for (long at = 0; at < count && found < 0;) {
			struct sys_dirent *entry = (struct sys_dirent *)(entries + at);
			int candidate = number_in(entry->name);

			if (candidate != folder && is_twin(files, candidate, fd, pid))
				found = candidate;
			at += entry->length;
		}
	}
	sys_close((int)folder);
	return found;
}

static int find_known(struct files *files, uint32_t number)
{
	for (int fd = 0; fd <= files->highest_fd; fd++)
		if (files_number(files, fd) == number)
			return fd;
	return -1;
}

struct open_file *files_detach(struct files *files, int fd, int pid)
{
	struct open_file *file = NULL;
	uint32_t number;
	int other;

	lock_acquire(&files->lock);
	number = files_number(files, fd);
	if (!number)
		goto leave;
	file = &files->open[number - 1];
	file->calls++;
	file->descriptors--;
	atomic_store_explicit(&files->number_of[fd], 0, memory_order_relaxed);
	other = file->descriptors ? find_known(files, number) : -1;
	if (other >= 0)
		file->fd = other;
	else if (files_is_drivers(fd) && (other = find_duplicate(files, fd, pid)) >= 0)
		add(files, file, other);
leave:
	lock_release(&files->lock);
	return file;
}
