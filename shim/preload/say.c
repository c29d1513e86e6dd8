#include "say.h"

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

void say_once(enum say_line line, const char *text)
{
	static _Atomic uint32_t said;
	char words[LINE_SIZE];
	size_t used;

	if (atomic_fetch_or(&said, 1u << line) & (1u << line))
		return;
	used = append(words, 0, "vrampack: ");
	used = append(words, used, text);
	words[used++] = '\n';
	/* Whether it could be written changes nothing. */
	sys_write(2, words, used);
}
