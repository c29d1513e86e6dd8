#include "buffer.h"

#include <stdio.h>
#include <string.h>

void buffer_add_bytes(struct buffer *buffer, const char *bytes, size_t count)
{
	if (buffer->is_full || count > buffer->size - buffer->used) {
		buffer->is_full = true;
		return;
	}
	memcpy(buffer->text + buffer->used, bytes, count);
	buffer->used += count;
}

void buffer_add_text(struct buffer *buffer, const char *text)
{
	buffer_add_bytes(buffer, text, strlen(text));
}

void buffer_add_json(struct buffer *buffer, const char *text)
{
	buffer_add_text(buffer, "\"");
	for (; *text; text++) {
		unsigned char c = (unsigned char)*text;
		char escape[8];

		if (c >= 0x20 && c != '"' && c != '\\') {
			buffer_add_bytes(buffer, text, 1);
			continue;
		}
		snprintf(escape, sizeof(escape), "\\u%04x", c);
		buffer_add_text(buffer, escape);
	}
	buffer_add_text(buffer, "\"");
}
