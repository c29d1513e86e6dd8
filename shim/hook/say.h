/* Writing: complaints to standard error, where the runtime picks them up, and the one line for the agent. */
#ifndef SAY_H
#define SAY_H

#include <stdbool.h>
#include <stddef.h>

/* One line on standard error; always false, so that a caller can `return say_error(..)`. */
bool say_error(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* A bounded text. What does not fit sets is_full, and nothing after it counts. */
struct say {
	char *text;
	size_t size;
	size_t used;
	bool is_full;
};

void say_bytes(struct say *say, const char *bytes, size_t count);
void say_text(struct say *say, const char *text);

/* The text as a JSON string, with its quotes. */
void say_json(struct say *say, const char *text);

#endif
