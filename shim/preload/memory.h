/* Memory that is the library's own: from the kernel, never from the caller's malloc. */
#ifndef MEMORY_H
#define MEMORY_H

#include <stddef.h>
#include <stdint.h>

/* Zeroed, and zeroed again in a child of fork; NULL without memory, or on a kernel that cannot (before 4.14). */
void *memory_wiped_on_fork(size_t size);
void memory_free(void *memory, size_t size);
/* Like realloc, the new part zeroed; NULL keeps the old; new_size 0 frees. A child of fork does not have it at all. */
void *memory_grow(void *memory, size_t old_size, size_t new_size);
/* Copies from or to any address of the caller: 0, or it is not mapped. */
int memory_copy_in(void *to, uint64_t from, size_t size);
int memory_copy_out(uint64_t to, const void *from, size_t size);

#if !__STDC_HOSTED__
void *memcpy(void *restrict to, const void *restrict from, size_t size);
void *memset(void *to, int value, size_t size);
#else
#include <string.h>
#endif

#endif
