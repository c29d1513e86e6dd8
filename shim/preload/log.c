#include "log.h"

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include "memory.h"
#include "syscalls.h"

#define LINE_SIZE 256

static size_t append(char *line, size_t used, const char *text)
{
	while (*text && used < LINE_SIZE - 1)
		line[used++] = *text++;
	return used;
}

void log_once(enum log_line line, const char *text)
{
	static _Atomic uint32_t written;
	char message[LINE_SIZE];
	size_t used;

	if (atomic_fetch_or(&written, 1u << line) & (1u << line))
		return;
	used = append(message, 0, "vrampack: ");
	used = append(message, used, text);
	message[used++] = '\n';
	/* Whether it could be written changes nothing. */
	sys_write(2, message, used);
}
