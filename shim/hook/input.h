/* Reading with an end: no more bytes than asked for, and no longer than until the deadline. */
#ifndef INPUT_H
#define INPUT_H

#include <stdbool.h>
#include <stddef.h>

/* Milliseconds of the monotonic clock. */
long input_now(void);

/* Wait until the descriptor can be read (or written); false when the deadline comes first. */
bool input_wait(int fd, short events, long deadline);

/* Everything up to the end of the file. The caller frees *text; false says errno, EFBIG above `limit`. */
bool input_all(int fd, size_t limit, long deadline, char **text, size_t *length);

bool input_file(const char *path, size_t limit, long deadline, char **text, size_t *length);

#endif
