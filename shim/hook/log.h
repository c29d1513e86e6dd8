/* Logs errors to standard error, where the runtime picks them up. */
#ifndef LOG_H
#define LOG_H

#include <stdbool.h>

/* One line on standard error; always false, so that a caller can `return log_error(..)`. */
bool log_error(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif
