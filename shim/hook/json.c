/* Walks through texts that json_read() has checked: every string ends, every bracket has its other half. */
#include "json.h"

#include <limits.h>
#include <stdint.h>
#include <string.h>

#include "json_chars.h"

static const char *after_space(const char *at)
{
	while (is_space(*at))
		at++;
	return at;
}

static const char *after_string(const char *at)
{
	for (at++; *at != '"'; at++)
		if (*at == '\\')
			at++;
	return at + 1;
}

static const char *after_scalar(const char *at)
{
	while (is_digit(*at) || (*at >= 'a' && *at <= 'z') || *at == '-' || *at == '+' || *at == '.' || *at == 'E')
		at++;
	return at;
}

static const char *after_value(const char *at)
{
	int depth = 0;

	if (*at == '"')
		return after_string(at);
	if (*at != '{' && *at != '[')
		return after_scalar(at);
	do {
		if (*at == '"') {
			at = after_string(at);
			continue;
		}
		if (*at == '{' || *at == '[')
			depth++;
		else if (*at == '}' || *at == ']')
			depth--;
		at++;
	} while (depth > 0);
	return at;
}

bool json_walk(struct json value, struct json_walk *walk)
{
	if (*value.at != '{' && *value.at != '[')
		return false;
	walk->has_names = *value.at == '{';
	walk->at = after_space(value.at + 1);
	return true;
}

bool json_next(struct json_walk *walk, struct json *name, struct json *value)
{
	if (*walk->at == '}' || *walk->at == ']')
		return false;
	if (walk->has_names) {
		name->at = walk->at;
		name->end = after_string(walk->at);
		walk->at = after_space(after_space(name->end) + 1);
	}
	value->at = walk->at;
	value->end = after_value(walk->at);
	walk->at = after_space(value->end);
	if (*walk->at == ',')
		walk->at = after_space(walk->at + 1);
	return true;
}

enum json_found json_member(struct json object, const char *name, struct json *value)
{
	enum json_found found = JSON_ABSENT;
	struct json_walk walk;
	struct json key, member;

	if (*object.at != '{' || !json_walk(object, &walk))
		return JSON_ABSENT;
	while (json_next(&walk, &key, &member)) {
		if (!json_equals(key, name))
			continue;
		if (found == JSON_FOUND)
			return JSON_TWICE;
		found = JSON_FOUND;
		*value = member;
	}
	return found;
}

static size_t encode(uint32_t point, char *to)
{
	if (point < 0x80) {
		to[0] = (char)point;
		return 1;
	}
	if (point < 0x800) {
		to[0] = (char)(0xC0 | point >> 6);
		to[1] = (char)(0x80 | (point & 0x3F));
		return 2;
	}
	if (point < 0x10000) {
		to[0] = (char)(0xE0 | point >> 12);
		to[1] = (char)(0x80 | (point >> 6 & 0x3F));
		to[2] = (char)(0x80 | (point & 0x3F));
		return 3;
	}
	to[0] = (char)(0xF0 | point >> 18);
	to[1] = (char)(0x80 | (point >> 12 & 0x3F));
	to[2] = (char)(0x80 | (point >> 6 & 0x3F));
	to[3] = (char)(0x80 | (point & 0x3F));
	return 4;
}

static uint32_t unit_at(const char *at)
{
	uint32_t unit = 0;

	for (int i = 0; i < 4; i++)
		unit = unit * 16 + (uint32_t)hex_digit(at[i]);
	return unit;
}

/* The bytes of the next plain byte or escape of a string; moves past it. */
static size_t next_bytes(const char **at, char to[4])
{
	static const char from[] = "\"\\/bfnrt", into[] = "\"\\/\b\f\n\r\t";
	const char *here = *at;
	uint32_t unit;

	if (*here != '\\') {
		to[0] = *here;
		*at = here + 1;
		return 1;
	}
	if (here[1] != 'u') {
		to[0] = into[strchr(from, here[1]) - from];
		*at = here + 2;
		return 1;
	}
	unit = unit_at(here + 2);
	*at = here + 6;
	if (unit >= 0xD800 && unit <= 0xDBFF) {
		unit = 0x10000 + ((unit - 0xD800) << 10) + (unit_at(here + 8) - 0xDC00);
		*at = here + 12;
	}
	return encode(unit, to);
}

bool json_is_string(struct json value)
{
	return *value.at == '"';
}

/* What is left of the string after `text`, or NULL if it does not begin with that. */
static const char *match(struct json value, const char *text)
{
	const char *at = value.at + 1, *last = value.end - 1;
	size_t left = strlen(text);

	if (!json_is_string(value))
		return NULL;
	while (left > 0 && at < last) {
		char bytes[4];
		size_t count = next_bytes(&at, bytes);

		if (count > left || memcmp(bytes, text, count) != 0)
			return NULL;
		text += count;
		left -= count;
	}
	return left == 0 ? at : NULL;
}

bool json_equals(struct json value, const char *text)
{
	return match(value, text) == value.end - 1;
}

bool json_continues(struct json value, const char *prefix)
{
	const char *rest = match(value, prefix);

	return rest && rest < value.end - 1;
}

bool json_copy(struct json value, char *to, size_t size)
{
	const char *at = value.at + 1, *last = value.end - 1;
	size_t used = 0;

	if (!json_is_string(value) || size == 0)
		return false;
	while (at < last) {
		char bytes[4];
		size_t count = next_bytes(&at, bytes);

		if (used + count >= size || bytes[0] == '\0')
			return false;
		memcpy(to + used, bytes, count);
		used += count;
	}
	to[used] = '\0';
	return true;
}

bool json_count(struct json value, long *number)
{
	long count = 0;

	for (const char *at = value.at; at < value.end; at++) {
		if (!is_digit(*at) || count > (LONG_MAX - (*at - '0')) / 10)
			return false;
		count = count * 10 + (*at - '0');
	}
	*number = count;
	return true;
}

bool json_is_true(struct json value)
{
	return *value.at == 't';
}
