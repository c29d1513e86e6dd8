/*
 * A strict JSON reader (RFC 8259) that allocates nothing.
 *
 * json_read() checks a whole text once. What it gives is a span of that text, and every other function takes such a
 * checked span, so none of them can fail on syntax. A name that occurs twice in an object is reported to the caller:
 * readers differ about which one counts, and a limit must not depend on that.
 */
#ifndef JSON_H
#define JSON_H

#include <stdbool.h>
#include <stddef.h>

struct json {
	const char *at;
	const char *end;
};

/* The position of a walk through an array or an object. */
struct json_walk {
	const char *at;
	bool has_names;
};

enum json_found { JSON_ABSENT, JSON_FOUND, JSON_TWICE };

/* True when the text is exactly one value with white space around it. */
bool json_read(const char *text, size_t length, struct json *whole);

/* The member of an object; absent when the value is not an object. */
enum json_found json_member(struct json object, const char *name, struct json *value);

/* Through the items of an array, or the names and values of an object. False when the value is neither. */
bool json_walk(struct json value, struct json_walk *walk);
bool json_next(struct json_walk *walk, struct json *name, struct json *value);

bool json_is_string(struct json value);
bool json_equals(struct json value, const char *text);

/* The string starts with prefix and goes on after it. */
bool json_continues(struct json value, const char *prefix);

/* Copies the string's bytes and a zero; false when it is not a string, does not fit, or has a zero inside. */
bool json_copy(struct json value, char *to, size_t size);

/* A whole number from 0 to LONG_MAX, written plainly. */
bool json_count(struct json value, long *number);

bool json_is_true(struct json value);

#endif
