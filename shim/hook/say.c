#include "say.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

bool say_error(const char *format, ...)
{
	va_list arguments;

	fputs("vrampack-hook: ", stderr);
	va_start(arguments, format);
	vfprintf(stderr, format, arguments);
	va_end(arguments);
	fputc('\n', stderr);
	return false;
}

void say_bytes(struct say *say, const char *bytes, size_t count)
{
	if (say->is_full || count > say->size - say->used) {
		say->is_full = true;
		return;
	}
	memcpy(say->text + say->used, bytes, count);
	say->used += count;
}

void say_text(struct say *say, const char *text)
{
	say_bytes(say, text, strlen(text));
}

void say_json(struct say *say, const char *text)
{
	say_text(say, "\"");
	for (; *text; text++) {
		unsigned char c = (unsigned char)*text;
		char escape[8];

		if (c >= 0x20 && c != '"' && c != '\\') {
			say_bytes(say, text, 1);
			continue;
		}
		snprintf(escape, sizeof(escape), "\\u%04x", c);
		say_text(say, escape);
	}
	say_text(say, "\"");
}
