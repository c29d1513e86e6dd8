/* A hook put into a bundle's config.json, the rest of which stays as the container engine wrote it. */
#ifndef SPLICE_H
#define SPLICE_H

#include <stdbool.h>
#include <stddef.h>

#include "buffer.h"

/*
 * `text` with one more createRuntime hook, the first of them: the program at `path`. The existing ones stay. Logs and
 * returns false when the text is not a configuration, or does not fit.
 */
bool splice_hook(struct buffer *buffer, const char *text, size_t length, const char *path);

#endif
