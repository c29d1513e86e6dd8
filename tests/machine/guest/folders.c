/* Mounts file systems, creates device nodes, and moves processes into cgroups. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <net/if.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "folders.h"

#define CGROUPS "/sys/fs/cgroup"

static const struct {
	const char *path;
	unsigned int major, minor;
} nodes[] = {
	{ "/dev/null", 1, 3 },
	{ "/dev/zero", 1, 5 },
	{ "/dev/full", 1, 7 },
	{ "/dev/random", 1, 8 },
	{ "/dev/urandom", 1, 9 },
	{ "/dev/kmsg", 1, 11 },
	{ "/dev/tty", 5, 0 },
};

/* Hierarchies of cgroup v1: two, so that a process can be in a different group of each. */
static const char *const controllers[] = { "memory", "pids" };

static bool is_made(const char *path)
{
	return !mkdir(path, 0755) || errno == EEXIST;
}

static bool mount_at(const char *type, const char *path, const char *options)
{
	return is_made(path) && !mount(type, path, type, 0, options);
}

static bool make_nodes(void)
{
	if (!is_made("/dev"))
		return false;
	for (size_t i = 0; i < sizeof(nodes) / sizeof(*nodes); i++) {
		dev_t number = makedev(nodes[i].major, nodes[i].minor);

		if (mknod(nodes[i].path, S_IFCHR | 0666, number) && errno != EEXIST)
			return false;
		if (chmod(nodes[i].path, 0666))
			return false;
	}
	return !symlink("/proc/self/fd", "/dev/fd");
}

static bool mount_old(void)
{
	char path[PATH_MAX];

	if (!mount_at("tmpfs", CGROUPS, "mode=755"))
		return false;
	for (size_t i = 0; i < sizeof(controllers) / sizeof(*controllers); i++) {
		snprintf(path, sizeof(path), CGROUPS "/%s", controllers[i]);
		if (!is_made(path) || mount("cgroup", path, "cgroup", 0, controllers[i]))
			return false;
	}
	return true;
}

/* A kernel without networking has none, and there nothing needs it. */
static void raise_loopback(void)
{
	struct ifreq loopback = { .ifr_name = "lo" };
	int any = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	if (any < 0)
		return;
	if (!ioctl(any, SIOCGIFFLAGS, &loopback)) {
		loopback.ifr_flags |= IFF_UP;
		ioctl(any, SIOCSIFFLAGS, &loopback);
	}
	close(any);
}

bool folders_make(bool is_old)
{
	if (!mount_at("proc", "/proc", NULL) || !mount_at("sysfs", "/sys", NULL) || !mount_at("tmpfs", "/tmp", "mode=1777"))
		return false;
	if (!make_nodes())
		return false;
	raise_loopback();
	/* Not every kernel has it, so failure is fine. */
	mount("debugfs", "/sys/kernel/debug", "debugfs", 0, NULL);
	return is_old ? mount_old() : mount_at("cgroup2", CGROUPS, NULL);
}

static bool make_all(char *path)
{
	for (char *slash = strchr(path + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
		bool is_there;

		*slash = '\0';
		is_there = is_made(path);
		*slash = '/';
		if (!is_there)
			return false;
	}
	return is_made(path);
}

static bool enter(const char *tree, const char *cgroup)
{
	char path[PATH_MAX];

	if (snprintf(path, sizeof(path), "%s/%s", tree, cgroup) >= (int)sizeof(path) - 16) {
		errno = ENAMETOOLONG;
		return false;
	}
	if (!make_all(path))
		return false;
	strcat(path, "/cgroup.procs");
	return folders_write(path, "0");
}

bool folders_enter(const char *cgroup)
{
	char tree[PATH_MAX];

	if (!access(CGROUPS "/cgroup.procs", F_OK))
		return enter(CGROUPS, cgroup);
	for (size_t i = 0; i < sizeof(controllers) / sizeof(*controllers); i++) {
		snprintf(tree, sizeof(tree), CGROUPS "/%s", controllers[i]);
		if (!enter(tree, cgroup))
			return false;
	}
	return true;
}

bool folders_write(const char *path, const char *text)
{
	int file = open(path, O_WRONLY | O_CLOEXEC);
	bool is_written;

	if (file < 0)
		return false;
	is_written = write(file, text, strlen(text)) == (ssize_t)strlen(text);
	close(file);
	return is_written;
}
