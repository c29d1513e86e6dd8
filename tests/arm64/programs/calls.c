/* Calls that the library stands in front of, as any program makes them. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

int main(int count, char **arguments)
{
	int ends[2], waiting = 0, status = 0;
	char path[4096];
	char *mapped;
	int file;

	if (count != 2 || pipe(ends) || write(ends[1], "abc", 3) != 3)
		return 1;
	if (ioctl(ends[0], FIONREAD, &waiting) || waiting != 3)
		return 2;
	if (close(ends[0]) || close(ends[0]) != -1 || errno != EBADF)
		return 3;
	snprintf(path, sizeof(path), "%s/mapped", arguments[1]);
	file = open(path, O_RDWR | O_CREAT, 0600);
	if (file < 0 || write(file, "mapped", 6) != 6)
		return 4;
	mapped = mmap(NULL, 6, PROT_READ, MAP_PRIVATE, file, 0);
	if (mapped == MAP_FAILED || memcmp(mapped, "mapped", 6))
		return 5;
	if (fork() == 0)
		_exit(ioctl(file, FIONREAD, &waiting) ? 1 : 7);
	if (wait(&status) < 0 || WEXITSTATUS(status) != 7)
		return 6;
	puts("ioctl close mmap fork");
	return 0;
}
