#include "log.h"

#include <stdarg.h>
#include <stdio.h>

bool log_error(const char *format, ...)
{
	va_list arguments;

	fputs("vrampack-hook: ", stderr);
	va_start(arguments, format);
	vfprintf(stderr, format, arguments);
	va_end(arguments);
	fputc('\n', stderr);
	return false;
}
