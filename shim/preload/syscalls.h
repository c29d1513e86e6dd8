/*
 * The system calls of the library, for x86-64 and arm64, without a libc: errors come back as -errno and the caller's errno is not touched.
 *
 * Through libc they would need its versioned names, could be caught by the library's own hooks, and could not be used
 * before libc is ready.
 */
#ifndef SYSCALLS_H
#define SYSCALLS_H

#include <asm/stat.h>
#include <asm/unistd.h>
#include <linux/time_types.h>
#include <stddef.h>
#include <stdint.h>

/* What the kernel's own headers define only for itself, or beside names of libc. */
#define SYS_AT_FDCWD (-100)
#define SYS_O_RDONLY 0
#ifdef __aarch64__
#define SYS_O_DIRECTORY 040000
#else
#define SYS_O_DIRECTORY 0200000
#endif
#define SYS_O_CLOEXEC 02000000
#define SYS_AF_UNIX 1
#define SYS_SOCK_SEQPACKET 5
#define SYS_SOCK_NONBLOCK 04000
#define SYS_SOCK_CLOEXEC 02000000
#define SYS_MSG_DONTWAIT 0x40
#define SYS_MSG_NOSIGNAL 0x4000
#define SYS_F_DUPFD_CLOEXEC 1030
#define SYS_POLLIN 1
#define SYS_FUTEX_WAIT_PRIVATE 128
#define SYS_FUTEX_WAKE_PRIVATE 129
#define SYS_CLOCK_MONOTONIC 1
#define SYS_KCMP_FILE 0
#define SYS_S_IFMT 0170000
#define SYS_S_IFREG 0100000
#define SYS_S_IFCHR 0020000

struct sys_pollfd {
	int fd;
	int16_t events, revents;
};

struct sys_iovec {
	uint64_t base;
	size_t length;
};

struct sys_dirent {
	uint64_t inode;
	int64_t offset;
	uint16_t length;
	unsigned char type;
	char name[];
};

static inline long sys_call6(long number, long a, long b, long c, long d, long e, long f)
{
#ifdef __aarch64__
	register long x8 __asm__("x8") = number;
	register long x0 __asm__("x0") = a;
	register long x1 __asm__("x1") = b;
	register long x2 __asm__("x2") = c;
	register long x3 __asm__("x3") = d;
	register long x4 __asm__("x4") = e;
	register long x5 __asm__("x5") = f;

	__asm__ volatile("svc 0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2), "r"(x3), "r"(x4), "r"(x5) : "memory");
	return x0;
#else
	register long r10 __asm__("r10") = d;
	register long r8 __asm__("r8") = e;
	register long r9 __asm__("r9") = f;
	long result;

	__asm__ volatile("syscall"
			 : "=a"(result)
			 : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
			 : "rcx", "r11", "memory");
	return result;
#endif
}

static inline long sys_call4(long number, long a, long b, long c, long d)
{
	return sys_call6(number, a, b, c, d, 0, 0);
}

static inline long sys_call3(long number, long a, long b, long c)
{
	return sys_call6(number, a, b, c, 0, 0, 0);
}

/* The kernel's own range of errors. */
static inline int sys_is_error(long result)
{
	return (unsigned long)result >= (unsigned long)-4095L;
}

static inline int sys_getpid(void)
{
	return (int)sys_call3(__NR_getpid, 0, 0, 0);
}

static inline long sys_close(int fd)
{
	return sys_call3(__NR_close, fd, 0, 0);
}

static inline long sys_open_folder(const char *path)
{
	return sys_call4(__NR_openat, SYS_AT_FDCWD, (long)path, SYS_O_RDONLY | SYS_O_DIRECTORY | SYS_O_CLOEXEC, 0);
}

static inline long sys_getdents(int fd, void *to, size_t size)
{
	return sys_call3(__NR_getdents64, fd, (long)to, (long)size);
}

static inline long sys_readlink(const char *path, char *to, size_t size)
{
	return sys_call4(__NR_readlinkat, SYS_AT_FDCWD, (long)path, (long)to, (long)size);
}

static inline long sys_fstat(int fd, struct stat *to)
{
	return sys_call3(__NR_fstat, fd, (long)to, 0);
}

/* 0: both descriptors are one open file. */
static inline long sys_kcmp_file(int pid, int fd, int other_fd)
{
	return sys_call6(__NR_kcmp, pid, pid, SYS_KCMP_FILE, fd, other_fd, 0);
}

static inline long sys_write(int fd, const void *from, size_t size)
{
	return sys_call3(__NR_write, fd, (long)from, (long)size);
}

static inline int64_t sys_now_ms(void)
{
	struct __kernel_timespec now = { 0 };

	sys_call3(__NR_clock_gettime, SYS_CLOCK_MONOTONIC, (long)&now, 0);
	return now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static inline void sys_pause_ms(int64_t milliseconds)
{
	struct __kernel_timespec pause = { milliseconds / 1000, milliseconds % 1000 * 1000000 };

	sys_call3(__NR_nanosleep, (long)&pause, 0, 0);
}

#endif
