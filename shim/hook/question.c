#include "question.h"

#include <stdio.h>

#include "log.h"

static void write_field(struct buffer *buffer, const char *name, struct json value)
{
	buffer_add_text(buffer, ",\"");
	buffer_add_text(buffer, name);
	buffer_add_text(buffer, "\":");
	if (value.at)
		buffer_add_bytes(buffer, value.at, (size_t)(value.end - value.at));
	else
		buffer_add_text(buffer, "\"\"");
}

static void write_variables(struct buffer *buffer, const struct variables *variables)
{
	const char *before = "";

	buffer_add_text(buffer, ",\"env\":[");
	for (size_t i = 0; i < VARIABLES_COUNT; i++) {
		struct json entry = variables->entries[i];

		if (!entry.at)
			continue;
		buffer_add_text(buffer, before);
		buffer_add_bytes(buffer, entry.at, (size_t)(entry.end - entry.at));
		before = ",";
	}
	buffer_add_text(buffer, "]");
}

/* Strings are copied as they were written: they were checked, and a checked string has no newline in it. */
bool question_write(struct buffer *buffer, const struct container *container, const struct cgroup *cgroup)
{
	char start[64];

	snprintf(start, sizeof(start), "{\"v\":%d,\"pid\":%ld", container->names_pod ? 1 : 2, container->pid);
	buffer_add_text(buffer, start);
	write_field(buffer, "id", container->id);
	write_field(buffer, "namespace", container->namespace);
	write_field(buffer, "pod", container->pod);
	write_field(buffer, "uid", container->uid);
	write_field(buffer, "container", container->name);
	buffer_add_text(buffer, ",\"hierarchy\":");
	buffer_add_json(buffer, cgroup->hierarchy);
	buffer_add_text(buffer, ",\"cgroup\":");
	buffer_add_json(buffer, cgroup->path);
	if (!container->names_pod)
		write_variables(buffer, &container->variables);
	buffer_add_text(buffer, "}\n");
	return !buffer->is_full || log_error("the question about the container does not fit in %zu bytes", buffer->size);
}
