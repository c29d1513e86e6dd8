#include "cgroup.h"

#include <string.h>

/* In this order: where the unified tree is used, the v1 ones say `/`, and vice versa. */
#define HIERARCHIES(X) \
	X("", "unified") \
	X("memory", "memory") \
	X("devices", "devices") \
	X("name=systemd", "systemd")

struct hierarchy {
	const char *controller;
	const char *folder;
};

struct line {
	const char *controllers;
	size_t controllers_length;
	const char *path;
	size_t path_length;
};

/* `4:memory:/a/b`: the path may have colons of its own, and starts with a slash. */
static bool parse_line(const char *at, size_t length, struct line *line)
{
	const char *end = at + length;
	const char *first = memchr(at, ':', length);
	const char *second = first ? memchr(first + 1, ':', (size_t)(end - first - 1)) : NULL;

	if (!second || second + 1 == end || second[1] != '/')
		return false;
	line->controllers = first + 1;
	line->controllers_length = (size_t)(second - first - 1);
	line->path = second + 1;
	line->path_length = (size_t)(end - second - 1);
	return !memchr(line->path, '\0', line->path_length);
}

/* `cpu,cpuacct` has cpu; an empty list is the unified tree and has the empty name only. */
static bool has_controller(const struct line *line, const char *name)
{
	const char *at = line->controllers, *end = at + line->controllers_length;
	size_t length = strlen(name);

	while (at <= end) {
		const char *comma = memchr(at, ',', (size_t)(end - at));
		const char *stop = comma ? comma : end;

		if ((size_t)(stop - at) == length && memcmp(at, name, length) == 0)
			return true;
		at = stop + 1;
	}
	return false;
}

static bool is_own(const struct line *line)
{
	return line->path_length > 1 && line->path_length < CGROUP_PATH_SIZE;
}

bool cgroup_parse(const char *text, size_t length, struct cgroup *cgroup)
{
#define ROW(controller, folder) { controller, folder },
	static const struct hierarchy hierarchies[] = { HIERARCHIES(ROW) };
#undef ROW
	size_t best = sizeof(hierarchies) / sizeof(*hierarchies);
	const size_t none = best;
	const char *end = text + length;

	while (text < end) {
		const char *newline = memchr(text, '\n', (size_t)(end - text));
		const char *stop = newline ? newline : end;
		struct line line;

		if (!parse_line(text, (size_t)(stop - text), &line))
			return false;
		for (size_t i = 0; i < best && is_own(&line); i++) {
			if (!has_controller(&line, hierarchies[i].controller))
				continue;
			best = i;
			memcpy(cgroup->path, line.path, line.path_length);
			cgroup->path[line.path_length] = '\0';
			cgroup->hierarchy = hierarchies[i].folder;
		}
		text = stop + 1;
	}
	return best < none;
}
