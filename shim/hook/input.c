#include "input.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#define FIRST_SIZE 16384 /* holds what runc writes for a plain container */

long input_now(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000L + now.tv_nsec / 1000000L;
}

bool input_wait(int fd, short events, long deadline)
{
	struct pollfd wanted = { .fd = fd, .events = events };
	int ready;

	do {
		long left = deadline - input_now();

		if (left < 0)
			left = 0;
		ready = poll(&wanted, 1, left > INT_MAX ? INT_MAX : (int)left);
	} while (ready < 0 && errno == EINTR);
	if (ready == 0)
		errno = ETIMEDOUT;
	return ready > 0;
}

static ssize_t read_some(int fd, char *to, size_t size, long deadline)
{
	ssize_t count;

	if (!input_wait(fd, POLLIN, deadline))
		return -1;
	do
		count = read(fd, to, size);
	while (count < 0 && errno == EINTR);
	return count;
}

/* Twice the room, never more than one byte above the limit: that byte shows that there was too much. */
static bool grow(char **text, size_t *size, size_t limit)
{
	size_t wanted = *size ? *size * 2 : FIRST_SIZE;
	char *larger;

	if (wanted > limit + 1)
		wanted = limit + 1;
	larger = realloc(*text, wanted);
	if (!larger)
		return false;
	*text = larger;
	*size = wanted;
	return true;
}

bool input_all(int fd, size_t limit, long deadline, char **text, size_t *length)
{
	char *all = NULL;
	size_t size = 0, used = 0;
	ssize_t count;

	do {
		if (used == size && !grow(&all, &size, limit))
			goto free_all;
		count = read_some(fd, all + used, size - used, deadline);
		if (count < 0)
			goto free_all;
		used += (size_t)count;
		if (used > limit) {
			errno = EFBIG;
			goto free_all;
		}
	} while (count > 0);
	*text = all;
	*length = used;
	return true;
free_all:
	free(all);
	return false;
}

bool input_file(const char *path, size_t limit, long deadline, char **text, size_t *length)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	bool is_read;
	int why;

	if (fd < 0)
		return false;
	is_read = input_all(fd, limit, deadline, text, length);
	why = errno;
	close(fd);
	errno = why;
	return is_read;
}
