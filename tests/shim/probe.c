/*
 * Calls the parts of vrampack-hook that read foreign text, many times in one process.
 *
 * Standard input is a row of texts, each behind its length (four bytes, little endian); standard output has one line
 * for each. A text is copied into memory of exactly its size, so that the sanitizers see one byte too far.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cgroup.h"
#include "container.h"
#include "json.h"
#include "splice.h"

/* A copy into so many bytes, in memory of exactly that size; NULL when it did not fit. */
static char *copied(struct json value, size_t size)
{
	char *copy = malloc(size);

	if (copy && json_copy(value, copy, size))
		return copy;
	free(copy);
	return NULL;
}

static void show_string(struct json value)
{
	char *copy = copied(value, (size_t)(value.end - value.at));

	putchar('s');
	if (copy) {
		for (char *c = copy; *c; c++)
			printf("%02x", (unsigned char)*c);
		if (copied(value, strlen(copy)))
			fputs(" and it fits without its zero", stdout);
	} else {
		putchar('!');
	}
	free(copy);
}

static void show(struct json value)
{
	struct json_walk walk;
	struct json name, member;
	bool has_names = *value.at == '{';

	if (json_is_string(value)) {
		show_string(value);
		return;
	}
	if (!json_walk(value, &walk)) {
		fwrite(value.at, 1, (size_t)(value.end - value.at), stdout);
		return;
	}
	putchar(has_names ? '{' : '[');
	while (json_next(&walk, &name, &member)) {
		if (has_names) {
			show_string(name);
			putchar(':');
		}
		show(member);
		putchar(',');
	}
	putchar(has_names ? '}' : ']');
}

static void probe_json(const char *text, size_t length)
{
	struct json whole;

	if (json_read(text, length, &whole))
		show(whole);
	else
		fputs("bad", stdout);
}

static void probe_cgroup(const char *text, size_t length)
{
	struct cgroup cgroup;

	if (cgroup_parse(text, length, &cgroup))
		printf("%s %s", cgroup.hierarchy, cgroup.path);
	else
		fputs("bad", stdout);
}

static void show_span(struct json span)
{
	putchar(' ');
	if (span.at)
		fwrite(span.at, 1, (size_t)(span.end - span.at), stdout);
	else
		putchar('-');
}

static void probe_config(const char *text, size_t length)
{
	struct container container = { 0 };

	if (!container_read_config(&container, text, length)) {
		fputs("bad", stdout);
		return;
	}
	fputs(container.is_limited ? "limited" : "free", stdout);
	show_span(container.namespace);
	show_span(container.pod);
	show_span(container.uid);
	show_span(container.name);
	for (size_t i = 0; i < VARIABLES_COUNT; i++)
		if (container.variables.entries[i].at)
			show_span(container.variables.entries[i]);
	if (container.root[0])
		printf(" root %s", container.root);
}

static void probe_state(const char *text, size_t length)
{
	struct container container = { 0 };

	if (container_read_state(&container, text, length))
		printf("%ld %s", container.pid, container.bundle);
	else
		fputs("bad", stdout);
}

static void probe_splice(const char *text, size_t length)
{
	char *room = malloc(length + 128);
	struct buffer buffer = { .text = room, .size = length + 128 };

	if (room && splice_hook(&buffer, text, length, "/hook"))
		fwrite(room, 1, buffer.used, stdout);
	else
		fputs("bad", stdout);
	free(room);
}

typedef void probe(const char *text, size_t length);

static probe *find(const char *name)
{
	if (strcmp(name, "json") == 0)
		return probe_json;
	if (strcmp(name, "cgroup") == 0)
		return probe_cgroup;
	if (strcmp(name, "config") == 0)
		return probe_config;
	if (strcmp(name, "splice") == 0)
		return probe_splice;
	return strcmp(name, "state") == 0 ? probe_state : NULL;
}

int main(int argc, char **argv)
{
	probe *call = argc == 2 ? find(argv[1]) : NULL;
	unsigned char size[4];

	if (!call)
		return 2;
	while (fread(size, 1, sizeof(size), stdin) == sizeof(size)) {
		size_t length = (size_t)size[0] | (size_t)size[1] << 8 | (size_t)size[2] << 16 | (size_t)size[3] << 24;
		char *text = malloc(length ? length : 1);

		if (!text || fread(text, 1, length, stdin) != length)
			abort();
		call(text, length);
		putchar('\n');
		free(text);
	}
	return 0;
}
