/* The library's own system calls beside libc's: the kernel's layouts and flags are what syscalls.h says they are. */
#define _GNU_SOURCE
#include <errno.h>
/* The kernel's struct of that name is in syscalls.h. */
#define stat libc_stat
#include <fcntl.h>
#undef stat
#undef st_atime
#undef st_mtime
#undef st_ctime
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "syscalls.h"

int main(int count, char **arguments)
{
	char entries[4096], path[4096], link[4096] = "";
	struct stat found;
	struct timespec now;
	long folder, file, at, bytes;

	if (count != 2)
		return 1;
	folder = sys_open_folder(arguments[1]);
	if (sys_is_error(folder) || sys_getdents((int)folder, entries, sizeof(entries)) <= 0)
		return 2;
	snprintf(path, sizeof(path), "%s/written", arguments[1]);
	file = open(path, O_RDWR | O_CREAT | O_EXCL, 0640);
	if (file < 0 || sys_open_folder(path) != -ENOTDIR)
		return 3;
	snprintf(path, sizeof(path), "/proc/self/fd/%ld", file);
	if (sys_readlink(path, link, sizeof(link)) <= 0 || !strstr(link, "/written"))
		return 4;
	if (sys_write((int)file, "12345", 5) != 5 || sys_fstat((int)file, &found) || found.st_size != 5)
		return 5;
	if ((found.st_mode & SYS_S_IFMT) != SYS_S_IFREG || (found.st_mode & 0777) != 0640)
		return 6;
	clock_gettime(CLOCK_MONOTONIC, &now);
	bytes = sys_now_ms() - (now.tv_sec * 1000 + now.tv_nsec / 1000000);
	if (bytes < 0 || bytes > 60000 || sys_getpid() != getpid())
		return 7;
	at = sys_call6(__NR_mmap, 0, 65536, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (sys_is_error(at) || sys_is_error(sys_call3(__NR_munmap, at, 65536, 0)))
		return 8;
	if (sys_call3(__NR_close, -1, 0, 0) != -EBADF || sys_close((int)file))
		return 9;
	puts("folder stat time memory");
	return 0;
}
