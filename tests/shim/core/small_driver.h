/*
 * A driver small enough for a thread sanitizer: handles, subtrees, second names and sizes, for calls of branch 580. It
 * reads and writes the caller's memory by copies that can fail, in the real one's order: what a pointer leads to first,
 * the struct itself last. Every offset is written down here once more.
 */
#ifndef SMALL_DRIVER_H
#define SMALL_DRIVER_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SMALL_THINGS 512
#define SMALL_PIECES 512

struct small_thing {
	uint32_t client, handle; /* handle 0: no thing */
	uint32_t class;
	int above, piece, file;
};

struct small_driver {
	pthread_mutex_t mutex;
	bool (*copy_in)(void *to, uint64_t from, size_t size);
	bool (*copy_out)(uint64_t to, const void *from, size_t size);
	struct small_thing things[SMALL_THINGS];
	uint64_t piece_bytes[SMALL_PIECES];
	int piece_names[SMALL_PIECES];
	uint64_t bytes, most_bytes; /* that exist now, and that ever existed at once */
	uint64_t made; /* how often memory was made */
};

void small_begin(struct small_driver *driver);
/* 0 or -errno, as the system call would say. */
long small_ioctl(struct small_driver *driver, int file, uint32_t request, uint64_t argument);
void small_close(struct small_driver *driver, int file);

#endif
