#include "library.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "log.h"

#define LIST_NAME "ld.so.preload"
#define LIST_PATH "/etc/" LIST_NAME
#define READ_ONLY (MS_BIND | MS_REMOUNT | MS_RDONLY | MS_NOSUID | MS_NODEV)
#define PATH_ONLY (O_PATH | O_NOFOLLOW | O_CLOEXEC)

/* A name in the container: the folder that has it, and what is there. */
struct place {
	/* As far as it was walked; the name is its end. */
	char path[BUNDLE_PATH_SIZE];
	const char *name;
	int parent;
	int fd;
};

struct self_path {
	char text[32];
};

static struct self_path self_path(int fd)
{
	struct self_path path;

	snprintf(path.text, sizeof(path.text), "/proc/self/fd/%d", fd);
	return path;
}

/* Enters the mount namespace of that process, which must not be our own. */
static bool enter_mount_namespace(long pid)
{
	struct stat there, here;
	char path[64];
	int fd;
	bool is_in = false;

	snprintf(path, sizeof(path), "/proc/%ld/ns/mnt", pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0 || fstat(fd, &there) < 0 || stat("/proc/self/ns/mnt", &here) < 0)
		log_error("reading %s: %s", path, strerror(errno));
	else if (there.st_ino == here.st_ino && there.st_dev == here.st_dev)
		log_error("the container has no mount namespace of its own");
	else if (setns(fd, CLONE_NEWNS) < 0)
		log_error("entering %s: %s", path, strerror(errno));
	else
		is_in = true;
	if (fd >= 0)
		close(fd);
	return is_in;
}

/* Which mount a descriptor is on, or -1. */
static long mount_of(int fd)
{
	char path[48], text[512];
	const char *line;
	ssize_t count;
	int file;

	snprintf(path, sizeof(path), "/proc/self/fdinfo/%d", fd);
	file = open(path, O_RDONLY | O_CLOEXEC);
	if (file < 0)
		return -1;
	count = read(file, text, sizeof(text) - 1);
	close(file);
	text[count > 0 ? count : 0] = '\0';
	line = strstr(text, "mnt_id:");
	return line ? strtol(line + strlen("mnt_id:"), NULL, 10) : -1;
}

/* Creates an empty file or folder to mount over. An existing one will do. */
static bool make(const struct place *place, mode_t kind)
{
	int fd;

	if (kind == S_IFDIR)
		return mkdirat(place->parent, place->name, 0755) == 0 || errno == EEXIST;
	fd = openat(place->parent, place->name, O_CREAT | O_EXCL | O_WRONLY | O_NOFOLLOW | O_CLOEXEC, 0644);
	if (fd >= 0)
		close(fd);
	return fd >= 0 || errno == EEXIST;
}

static bool is_same(int one, int other)
{
	struct stat first, second;

	return fstat(one, &first) == 0 && fstat(other, &second) == 0 && first.st_dev == second.st_dev &&
	       first.st_ino == second.st_ino;
}

static bool is_good(const struct place *place, mode_t kind)
{
	struct stat status;

	if (fstat(place->fd, &status) < 0)
		return log_error("%s of the container: %s", place->path, strerror(errno));
	if (S_ISLNK(status.st_mode))
		return log_error("%s of the container is a symbolic link, and the library is needed there", place->path);
	if ((status.st_mode & S_IFMT) != kind)
		return log_error("%s of the container is not a %s, and the library needs one there", place->path,
				 kind == S_IFDIR ? "folder" : "plain file");
	if (mount_of(place->fd) < 0 || mount_of(place->fd) != mount_of(place->parent))
		return log_error("%s of the container is a volume, and the library is needed there: mount the volume elsewhere",
				 place->path);
	return true;
}

/* Sets `fd`, which the caller closes even after false. `source` itself is accepted: there may be two hooks. */
static bool open_or_make(struct place *place, mode_t kind, int source)
{
	place->fd = openat(place->parent, place->name, PATH_ONLY);
	if (place->fd < 0 && errno == ENOENT) {
		if (!make(place, kind))
			return log_error("%s is missing in the container and cannot be created: %s; the image must have it",
					 place->path, strerror(errno));
		place->fd = openat(place->parent, place->name, PATH_ONLY);
	}
	if (place->fd < 0)
		return log_error("%s of the container: %s", place->path, strerror(errno));
	return is_same(place->fd, source) || is_good(place, kind);
}

/*
 * Walks to `path` below `root`, step by step, for `source` of that kind. Sets parent and fd, which the caller closes.
 */
static bool walk_to(struct place *place, int root, const char *path, mode_t kind, int source)
{
	char *at = place->path;

	*place = (struct place){ .parent = -1, .fd = dup(root) };
	if (place->fd < 0 || path[0] != '/' || strlen(path) >= sizeof(place->path)) {
		log_error("%s is not a path to mount", path);
		return false;
	}
	strcpy(place->path, path);
	do {
		char *slash = strchr(at + 1, '/');

		if (slash)
			*slash = '\0';
		place->name = at + 1;
		if (!*place->name || strcmp(place->name, ".") == 0 || strcmp(place->name, "..") == 0)
			return log_error("%s is not a path to mount", path);
		if (place->parent >= 0)
			close(place->parent);
		place->parent = place->fd;
		if (!open_or_make(place, slash ? S_IFDIR : kind, source))
			return false;
		if (slash)
			*slash = '/';
		at = slash;
	} while (at);
	return true;
}

/* Makes what is mounted there read-only, if it is `source`. */
static bool make_read_only(const struct place *place, int source)
{
	int fd = openat(place->parent, place->name, PATH_ONLY);
	bool is_done = fd >= 0 && is_same(fd, source) &&
		       mount(NULL, self_path(fd).text, NULL, READ_ONLY, NULL) == 0;

	if (!is_done)
		log_error("making %s of the container read-only: %s", place->path, strerror(errno));
	if (fd >= 0)
		close(fd);
	return is_done;
}

static bool bind_to(int source, int root, const char *path, mode_t kind)
{
	struct place place;
	bool is_bound = walk_to(&place, root, path, kind, source);

	if (is_bound && !is_same(place.fd, source) &&
	    mount(self_path(source).text, self_path(place.fd).text, NULL, MS_BIND, NULL) < 0)
		is_bound = log_error("mounting %s into the container: %s", path, strerror(errno));
	is_bound = is_bound && make_read_only(&place, source);
	if (place.fd >= 0)
		close(place.fd);
	if (place.parent >= 0)
		close(place.parent);
	return is_bound;
}

/* Both mounts: the whole folder, and the list that the dynamic linker reads. */
static bool bind_both(int source, int root, const char *folder)
{
	struct statvfs status;
	struct stat kind;
	bool are_bound = false;
	int list = openat(source, LIST_NAME, PATH_ONLY);

	if (list < 0 || fstat(list, &kind) < 0 || !S_ISREG(kind.st_mode))
		log_error("%s/%s of this host is not a plain file: install the library again", folder, LIST_NAME);
	else if (fstatvfs(source, &status) < 0 || (status.f_flag & ST_NOEXEC))
		log_error("%s of this host is on a file system mounted noexec: no library is loaded from there", folder);
	else
		are_bound = bind_to(source, root, folder, S_IFDIR) && bind_to(list, root, LIST_PATH, S_IFREG);
	if (list >= 0)
		close(list);
	return are_bound;
}

bool library_mount(const char *folder, const struct container *container)
{
	char path[2 * BUNDLE_PATH_SIZE + 2];
	bool is_mounted = false;
	int source, root;

	if (!container->root[0])
		return log_error("%s/config.json names no root", container->bundle);
	snprintf(path, sizeof(path), "%s/%s", container->root[0] == '/' ? "" : container->bundle, container->root);
	umask(022);
	if (!enter_mount_namespace(container->pid))
		return false;
	source = open(folder, O_PATH | O_DIRECTORY | O_CLOEXEC);
	root = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (source < 0 || root < 0)
		log_error("opening %s: %s", source < 0 ? folder : path, strerror(errno));
	else
		is_mounted = bind_both(source, root, folder);
	if (root >= 0)
		close(root);
	if (source >= 0)
		close(source);
	return is_mounted;
}
