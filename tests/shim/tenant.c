/*
 * The first process of a container, on orders from standard input; each is answered with a line.
 *     say PATH HEX   one packet to that socket, over the connection it has or a new one: the packet that comes back
 *     there PATH     whether it can be read and written: `writable`, `read-only`, or why not
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define SIZE 1024

static void say(int *line, const char *path, const char *hex)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	unsigned char packet[SIZE];
	size_t size = 0;
	ssize_t count;

	for (unsigned byte; size < SIZE && sscanf(hex, "%2x", &byte) == 1; hex += 2)
		packet[size++] = (unsigned char)byte;
	if (*line < 0) {
		snprintf(address.sun_path, sizeof(address.sun_path), "%s", path);
		*line = socket(AF_UNIX, SOCK_SEQPACKET, 0);
		if (connect(*line, (struct sockaddr *)&address, sizeof(address)) < 0)
			goto hang_up;
	}
	if (send(*line, packet, size, MSG_NOSIGNAL) != (ssize_t)size)
		goto hang_up;
	count = recv(*line, packet, sizeof(packet), 0);
	if (count <= 0)
		goto hang_up;
	for (ssize_t i = 0; i < count; i++)
		printf("%02x", packet[i]);
	putchar('\n');
	return;
hang_up:
	puts(strerror(errno));
	close(*line);
	*line = -1;
}

static void there(const char *path)
{
	if (access(path, R_OK) == 0 && access(path, W_OK) == 0)
		puts("writable");
	else
		puts(errno == EROFS ? "read-only" : strerror(errno));
}

int main(void)
{
	static char order[4 * SIZE], path[SIZE], hex[2 * SIZE];
	int line = -1;

	while (fgets(order, sizeof(order), stdin)) {
		if (sscanf(order, "say %1023s %2047s", path, hex) == 2)
			say(&line, path, hex);
		else if (sscanf(order, "there %1023s", path) == 1)
			there(path);
		else
			puts("what?");
		fflush(stdout);
	}
	return 0;
}
