/* A text that is assembled in memory of a fixed size: the line for the agent, a config.json. */
#ifndef BUFFER_H
#define BUFFER_H

#include <stdbool.h>
#include <stddef.h>

/* What does not fit sets is_full, and nothing after it counts. */
struct buffer {
	char *text;
	size_t size;
	size_t used;
	bool is_full;
};

void buffer_add_bytes(struct buffer *buffer, const char *bytes, size_t count);
void buffer_add_text(struct buffer *buffer, const char *text);

/* The text as a JSON string, with its quotes. */
void buffer_add_json(struct buffer *buffer, const char *text);

#endif
