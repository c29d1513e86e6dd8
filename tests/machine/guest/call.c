/*
 * Single system calls for the host. They are part of the first process, because executing another program would take twice
 * as long. The result is the errno, or 0.
 *
 *   call read PATH            writes the file to the output
 *   call write PATH           writes the input to the file with one write(2); EIO if it is cut short
 *   call insmod FILE [TEXT]   with these module parameters
 *   call rmmod NAME
 *   call mkdir | rmdir | unlink PATH
 *   call mknod PATH MAJOR MINOR
 *   call kill PID             with SIGKILL
 *   call stat PATH            inode number, mode in octal, user
 *   call list PATH            its entries, unsorted
 *   call log                  the kernel's log, as much as its buffer still holds
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/klog.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "call.h"

enum {
	MOST = 1 << 20,
	CHUNK = 4096,
};

struct streams {
	FILE *input, *output;
};

static int write_output(const struct streams *streams, const char *bytes, size_t length)
{
	return fwrite(bytes, 1, length, streams->output) == length ? 0 : EIO;
}

static int call_read(char **words, const struct streams *streams)
{
	char bytes[CHUNK];
	int file = open(words[0], O_RDONLY), wrong = 0;
	ssize_t got;

	if (file < 0)
		return errno;
	while (!wrong && (got = read(file, bytes, sizeof(bytes)))) {
		if (got < 0)
			wrong = errno;
		else
			wrong = write_output(streams, bytes, (size_t)got);
	}
	close(file);
	return wrong;
}

/* Creates the file if it is missing. Where the file system does not allow that, the error is ENOENT, as for a reader. */
static int open_to_write(const char *path)
{
	int file = open(path, O_WRONLY | O_TRUNC);

	if (file >= 0 || errno != ENOENT)
		return file;
	file = open(path, O_WRONLY | O_CREAT, 0644);
	if (file < 0)
		errno = ENOENT;
	return file;
}

static int call_write(char **words, const struct streams *streams)
{
	static char bytes[MOST];
	size_t length = fread(bytes, 1, sizeof(bytes), streams->input);
	int file = open_to_write(words[0]), wrong = 0;
	ssize_t written;

	if (file < 0)
		return errno;
	written = write(file, bytes, length);
	if (written < 0)
		wrong = errno;
	else if ((size_t)written != length)
		wrong = EIO;
	close(file);
	return wrong;
}

static int call_insmod(char **words, const struct streams *streams)
{
	int file = open(words[0], O_RDONLY), wrong;

	(void)streams;
	if (file < 0)
		return errno;
	wrong = syscall(SYS_finit_module, file, words[1] ? words[1] : "", 0) ? errno : 0;
	close(file);
	return wrong;
}

static int call_rmmod(char **words, const struct streams *streams)
{
	(void)streams;
	return syscall(SYS_delete_module, words[0], O_NONBLOCK) ? errno : 0;
}

static int call_mkdir(char **words, const struct streams *streams)
{
	(void)streams;
	return mkdir(words[0], 0755) ? errno : 0;
}

static int call_rmdir(char **words, const struct streams *streams)
{
	(void)streams;
	return rmdir(words[0]) ? errno : 0;
}

static int call_unlink(char **words, const struct streams *streams)
{
	(void)streams;
	return unlink(words[0]) ? errno : 0;
}

static int call_mknod(char **words, const struct streams *streams)
{
	dev_t number = makedev((unsigned int)atoi(words[1]), (unsigned int)atoi(words[2]));

	(void)streams;
	if (mknod(words[0], S_IFCHR | 0666, number))
		return errno;
	return chmod(words[0], 0666) ? errno : 0;
}

static int call_kill(char **words, const struct streams *streams)
{
	(void)streams;
	return kill(atoi(words[0]), SIGKILL) ? errno : 0;
}

static int call_stat(char **words, const struct streams *streams)
{
	struct stat stat_;

	if (stat(words[0], &stat_))
		return errno;
	fprintf(streams->output, "%llu %o %u\n", (unsigned long long)stat_.st_ino, stat_.st_mode & 07777, stat_.st_uid);
	return 0;
}

static int call_list(char **words, const struct streams *streams)
{
	DIR *folder = opendir(words[0]);
	const struct dirent *entry;

	if (!folder)
		return errno;
	while ((entry = readdir(folder)))
		if (strcmp(entry->d_name, ".") && strcmp(entry->d_name, ".."))
			fprintf(streams->output, "%s\n", entry->d_name);
	return closedir(folder) ? errno : 0;
}

static int call_log(char **words, const struct streams *streams)
{
	enum { READ_ALL = 3, SIZE = 10 };
	int size = klogctl(SIZE, NULL, 0), length, wrong;
	char *bytes = size > 0 ? malloc((size_t)size) : NULL;

	(void)words;
	if (!bytes)
		return errno;
	length = klogctl(READ_ALL, bytes, size);
	wrong = length < 0 ? errno : write_output(streams, bytes, (size_t)length);
	free(bytes);
	return wrong;
}

static const struct {
	const char *name;
	size_t words;
	int (*call)(char **words, const struct streams *streams);
} calls[] = {
	{ "read", 1, call_read },	{ "write", 1, call_write },   { "insmod", 1, call_insmod },
	{ "rmmod", 1, call_rmmod },	{ "mkdir", 1, call_mkdir },   { "rmdir", 1, call_rmdir },
	{ "unlink", 1, call_unlink },	{ "mknod", 3, call_mknod },   { "kill", 1, call_kill },
	{ "stat", 1, call_stat },	{ "list", 1, call_list },     { "log", 0, call_log },
};

int call(char **words, FILE *input, FILE *output)
{
	const struct streams streams = { input, output };
	size_t count = 0;

	while (words[count])
		count++;
	for (size_t i = 0; i < sizeof(calls) / sizeof(*calls) && count; i++) {
		int wrong;

		if (strcmp(words[0], calls[i].name) || count < 1 + calls[i].words)
			continue;
		wrong = calls[i].call(words + 1, &streams);
		return fflush(output) ? EIO : wrong;
	}
	return ENOSYS;
}
