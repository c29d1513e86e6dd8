/* json_read(): is a text exactly one JSON value? Follows the grammar of RFC 8259. */
#include "json.h"

#include <string.h>

#include "json_chars.h"

/* Runtimes write 8 levels; the limit keeps the stack small for any input. */
#define DEEPEST 64

struct reader {
	const char *at;
	const char *end;
	int depth;
};

static bool read_value(struct reader *r);

static void read_space(struct reader *r)
{
	while (r->at < r->end && is_space(*r->at))
		r->at++;
}

static bool read_char(struct reader *r, char c)
{
	if (r->at == r->end || *r->at != c)
		return false;
	r->at++;
	return true;
}

static bool read_word(struct reader *r, const char *word)
{
	size_t length = strlen(word);

	if ((size_t)(r->end - r->at) < length || memcmp(r->at, word, length) != 0)
		return false;
	r->at += length;
	return true;
}

/* Four hexadecimal digits, or -1. */
static long read_unit(struct reader *r)
{
	long unit = 0;

	if (r->end - r->at < 4)
		return -1;
	for (int i = 0; i < 4; i++) {
		int digit = hex_digit(*r->at++);

		if (digit < 0)
			return -1;
		unit = unit * 16 + digit;
	}
	return unit;
}

/* After "\u": one unit, or a high and a low surrogate. A lonely surrogate is no character. */
static bool read_point(struct reader *r)
{
	long unit = read_unit(r);

	if (unit < 0 || (unit >= 0xDC00 && unit <= 0xDFFF))
		return false;
	if (unit < 0xD800 || unit > 0xDBFF)
		return true;
	if (!read_word(r, "\\u"))
		return false;
	unit = read_unit(r);
	return unit >= 0xDC00 && unit <= 0xDFFF;
}

static bool read_escape(struct reader *r)
{
	if (r->at == r->end)
		return false;
	switch (*r->at++) {
	case '"': case '\\': case '/': case 'b': case 'f': case 'n': case 'r': case 't':
		return true;
	case 'u':
		return read_point(r);
	default:
		return false;
	}
}

/* One character of UTF-8 above 0x7F: no overlong form, no surrogate, nothing above 0x10FFFF (RFC 3629). */
static bool read_wide(struct reader *r)
{
	unsigned char first = (unsigned char)*r->at++;
	unsigned char low = 0x80, high = 0xBF;
	int more;

	if (first >= 0xC2 && first <= 0xDF)
		more = 1;
	else if (first >= 0xE0 && first <= 0xEF)
		more = 2;
	else if (first >= 0xF0 && first <= 0xF4)
		more = 3;
	else
		return false;
	if (first == 0xE0)
		low = 0xA0;
	else if (first == 0xED)
		high = 0x9F;
	else if (first == 0xF0)
		low = 0x90;
	else if (first == 0xF4)
		high = 0x8F;
	for (; more > 0; more--) {
		unsigned char next;

		if (r->at == r->end)
			return false;
		next = (unsigned char)*r->at++;
		if (next < low || next > high)
			return false;
		low = 0x80;
		high = 0xBF;
	}
	return true;
}

static bool read_string(struct reader *r)
{
	if (!read_char(r, '"'))
		return false;
	while (r->at < r->end) {
		unsigned char c = (unsigned char)*r->at;

		if (c == '"') {
			r->at++;
			return true;
		}
		if (c < 0x20)
			return false;
		if (c >= 0x80) {
			if (!read_wide(r))
				return false;
			continue;
		}
		r->at++;
		if (c == '\\' && !read_escape(r))
			return false;
	}
	return false;
}

static bool read_digits(struct reader *r)
{
	const char *from = r->at;

	while (r->at < r->end && is_digit(*r->at))
		r->at++;
	return r->at > from;
}

static bool read_number(struct reader *r)
{
	read_char(r, '-');
	if (!read_char(r, '0') && !read_digits(r))
		return false;
	if (read_char(r, '.') && !read_digits(r))
		return false;
	if (read_char(r, 'e') || read_char(r, 'E')) {
		if (!read_char(r, '+'))
			read_char(r, '-');
		return read_digits(r);
	}
	return true;
}

static bool read_name(struct reader *r)
{
	read_space(r);
	if (!read_string(r))
		return false;
	read_space(r);
	return read_char(r, ':');
}

static bool read_items(struct reader *r, char close, bool has_names)
{
	r->at++;
	if (++r->depth > DEEPEST)
		return false;
	read_space(r);
	if (!read_char(r, close)) {
		do {
			if (has_names && !read_name(r))
				return false;
			if (!read_value(r))
				return false;
		} while (read_char(r, ','));
		if (!read_char(r, close))
			return false;
	}
	r->depth--;
	return true;
}

/* A value and the white space on both sides of it. */
static bool read_value(struct reader *r)
{
	bool is_good;

	read_space(r);
	if (r->at == r->end)
		return false;
	switch (*r->at) {
	case '{':
		is_good = read_items(r, '}', true);
		break;
	case '[':
		is_good = read_items(r, ']', false);
		break;
	case '"':
		is_good = read_string(r);
		break;
	case 't':
		is_good = read_word(r, "true");
		break;
	case 'f':
		is_good = read_word(r, "false");
		break;
	case 'n':
		is_good = read_word(r, "null");
		break;
	default:
		is_good = read_number(r);
	}
	read_space(r);
	return is_good;
}

bool json_read(const char *text, size_t length, struct json *whole)
{
	struct reader r = { text, text + length, 0 };

	if (!read_value(&r) || r.at != r.end)
		return false;
	whole->at = text;
	whole->end = r.end;
	while (is_space(*whole->at))
		whole->at++;
	while (is_space(whole->end[-1]))
		whole->end--;
	return true;
}
