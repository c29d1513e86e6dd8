/*
 * vrampack-runtime: runc with vrampack-hook in every container, for engines that can name a runtime but no hook (Docker).
 *
 * It adds the hook in its own folder to the config.json of a container that is created, and then executes the
 * runtime; every other command is passed on unchanged. `--then PROGRAM`, before everything else, names a runtime
 * other than runc.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "buffer.h"
#include "input.h"
#include "log.h"
#include "splice.h"

#define CONFIG_LIMIT (16u << 20) /* as the hook reads */
#define READ_MS 5000
#define HOOK "vrampack-hook"

/* Options of runc before its command that take a value. */
static bool takes_value(const char *option)
{
	static const char *const known[] = { "--log", "--log-format", "--root", "--criu", "--rootless" };

	for (size_t i = 0; i < sizeof(known) / sizeof(*known); i++)
		if (strcmp(option, known[i]) == 0)
			return true;
	return false;
}

/* The bundle of a container that is created; NULL for every other command. */
static const char *bundle_of(char **arguments)
{
	const char *bundle = ".";

	while (*arguments && **arguments == '-')
		arguments += takes_value(*arguments) && arguments[1] ? 2 : 1;
	if (!*arguments || (strcmp(*arguments, "create") != 0 && strcmp(*arguments, "run") != 0))
		return NULL;
	for (arguments++; *arguments; arguments++) {
		if ((strcmp(*arguments, "--bundle") == 0 || strcmp(*arguments, "-b") == 0) && arguments[1])
			bundle = *++arguments;
		else if (strncmp(*arguments, "--bundle=", 9) == 0)
			bundle = *arguments + 9;
	}
	return bundle;
}

/* The hook is in this program's folder. */
static bool find_hook(char *path, size_t size)
{
	ssize_t length = readlink("/proc/self/exe", path, size - sizeof(HOOK));
	char *slash;

	if (length < 0)
		return log_error("reading /proc/self/exe: %s", strerror(errno));
	path[length] = '\0';
	slash = strrchr(path, '/');
	strcpy(slash ? slash + 1 : path, HOOK);
	return access(path, X_OK) == 0 || log_error("%s: %s", path, strerror(errno));
}

/* Atomically: writes a new file with the same owner and mode, then renames it. */
static bool replace(const char *path, const struct buffer *buffer)
{
	char making[PATH_MAX + 8];
	struct stat status;
	ssize_t count;
	int fd;

	snprintf(making, sizeof(making), "%s.new", path);
	fd = stat(path, &status) < 0 ? -1 : open(making, O_CREAT | O_TRUNC | O_WRONLY | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (fd < 0)
		return log_error("writing %s: %s", making, strerror(errno));
	count = write(fd, buffer->text, buffer->used);
	if (count != (ssize_t)buffer->used || fchmod(fd, status.st_mode & 07777) < 0 ||
	    fchown(fd, status.st_uid, status.st_gid) < 0 || close(fd) < 0 || rename(making, path) < 0)
		return log_error("writing %s: %s", path, strerror(errno));
	return true;
}

static bool add_hook(const char *bundle)
{
	char path[PATH_MAX], hook[PATH_MAX], *text;
	struct buffer buffer = { .size = CONFIG_LIMIT };
	size_t length;
	bool is_added;

	if (!find_hook(hook, sizeof(hook)))
		return false;
	if ((size_t)snprintf(path, sizeof(path), "%s/config.json", bundle) >= sizeof(path))
		return log_error("bundle %s is too long a path", bundle);
	if (!input_file(path, CONFIG_LIMIT, input_now() + READ_MS, &text, &length))
		return log_error("reading %s: %s", path, strerror(errno));
	buffer.text = malloc(buffer.size);
	is_added = buffer.text ? splice_hook(&buffer, text, length, hook) && replace(path, &buffer) : log_error("no memory");
	free(buffer.text);
	free(text);
	return is_added;
}

int main(int argc, char **argv)
{
	char usual[] = "runc", *runtime = usual;
	const char *bundle;

	if (argc > 2 && strcmp(argv[1], "--then") == 0) {
		runtime = argv[2];
		argv += 2;
	}
	bundle = bundle_of(argv + 1);
	if (bundle && !add_hook(bundle))
		return EXIT_FAILURE;
	argv[0] = runtime;
	execvp(runtime, argv);
	log_error("executing %s: %s", runtime, strerror(errno));
	return 127;
}
