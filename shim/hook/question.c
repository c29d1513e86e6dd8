#include "question.h"

#include <stdio.h>

static void write_field(struct say *say, const char *name, struct json value)
{
	say_text(say, ",\"");
	say_text(say, name);
	say_text(say, "\":");
	if (value.at)
		say_bytes(say, value.at, (size_t)(value.end - value.at));
	else
		say_text(say, "\"\"");
}

static void write_variables(struct say *say, const struct variables *variables)
{
	const char *before = "";

	say_text(say, ",\"env\":[");
	for (size_t i = 0; i < VARIABLES_COUNT; i++) {
		struct json entry = variables->entries[i];

		if (!entry.at)
			continue;
		say_text(say, before);
		say_bytes(say, entry.at, (size_t)(entry.end - entry.at));
		before = ",";
	}
	say_text(say, "]");
}

/* Strings go on as they were written: they were checked, and a checked string has no newline in it. */
bool question_write(struct say *say, const struct container *container, const struct cgroup *cgroup)
{
	char start[64];

	snprintf(start, sizeof(start), "{\"v\":%d,\"pid\":%ld", container->names_pod ? 1 : 2, container->pid);
	say_text(say, start);
	write_field(say, "id", container->id);
	write_field(say, "namespace", container->namespace);
	write_field(say, "pod", container->pod);
	write_field(say, "uid", container->uid);
	write_field(say, "container", container->name);
	say_text(say, ",\"hierarchy\":");
	say_json(say, cgroup->hierarchy);
	say_text(say, ",\"cgroup\":");
	say_json(say, cgroup->path);
	if (!container->names_pod)
		write_variables(say, &container->variables);
	say_text(say, "}\n");
	return !say->is_full || say_error("what is to be said about the container does not fit in %zu bytes", say->size);
}
