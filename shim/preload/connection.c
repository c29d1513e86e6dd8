#include "connection.h"

#include <asm-generic/errno.h>
#include <linux/un.h>

#include "memory.h"
#include "syscalls.h"

/* Guessed: above what programs that count on low numbers use, below every soft limit that is common (1024). */
#define HIGH_FD 1000

static int fd_of(const struct connection *connection)
{
	return atomic_load_explicit(&connection->fd_and_one, memory_order_relaxed) - 1;
}

static uint64_t socket_inode(int fd)
{
	struct stat found = { 0 };

	return sys_fstat(fd, &found) == 0 && (found.st_mode & SYS_S_IFMT) == 0140000 ? found.st_ino : 0;
}

bool connection_is_open(const struct connection *connection)
{
	int fd = fd_of(connection);

	return fd >= 0 && connection->inode && socket_inode(fd) == connection->inode;
}

bool connection_open(struct connection *connection)
{
	struct sockaddr_un address = { .sun_family = SYS_AF_UNIX, .sun_path = PROTOCOL_SOCKET };
	long fd, high;

	fd = sys_call3(__NR_socket, SYS_AF_UNIX, SYS_SOCK_SEQPACKET | SYS_SOCK_NONBLOCK | SYS_SOCK_CLOEXEC, 0);
	if (fd < 0)
		return false;
	if (sys_call3(__NR_connect, fd, (long)&address, sizeof(address)) < 0)
		goto close_fd;
	high = sys_call3(__NR_fcntl, fd, SYS_F_DUPFD_CLOEXEC, HIGH_FD);
	if (high >= 0) {
		sys_close((int)fd);
		fd = high;
	}
	connection->inode = socket_inode((int)fd);
	atomic_store_explicit(&connection->fd_and_one, (int32_t)fd + 1, memory_order_relaxed);
	return true;
close_fd:
	sys_close((int)fd);
	return false;
}

void connection_close(struct connection *connection)
{
	if (connection_is_open(connection))
		sys_close(fd_of(connection));
	atomic_store_explicit(&connection->fd_and_one, 0, memory_order_relaxed);
}

bool connection_send(struct connection *connection, enum protocol_kind kind, struct connection_question *question)
{
	size_t size = sizeof(question->head) + question->head.count * sizeof(question->holdings[0]);
	long sent;

	if (!connection_is_open(connection))
		return false;
	question->head.version = PROTOCOL_VERSION;
	question->head.kind = (uint16_t)kind;
	question->head.sequence = ++connection->sequence;
	question->head.zero = 0;
	sent = sys_call6(__NR_sendto, fd_of(connection), (long)question, (long)size,
			 SYS_MSG_DONTWAIT | SYS_MSG_NOSIGNAL, 0, 0);
	if (sent < 0 && sent != -EAGAIN && sent != -EINTR)
		connection_close(connection);
	return sent == (long)size;
}

static bool wait_for_input(int fd, int64_t until_ms)
{
	int64_t left = until_ms - sys_now_ms();
	struct sys_pollfd wanted = { .fd = fd, .events = SYS_POLLIN };
	struct __kernel_timespec timeout = { left / 1000, left % 1000 * 1000000 };

	return left > 0 && sys_call6(__NR_ppoll, (long)&wanted, 1, (long)&timeout, 0, 8, 0) != 0;
}

bool connection_receive(struct connection *connection, struct protocol_answer *answer, int64_t until_ms)
{
	long got;

	while (wait_for_input(fd_of(connection), until_ms)) {
		if (!connection_is_open(connection))
			break;
		got = sys_call6(__NR_recvfrom, fd_of(connection), (long)answer, sizeof(*answer), SYS_MSG_DONTWAIT, 0, 0);
		if (got == -EAGAIN || got == -EINTR)
			continue;
		if (got != sizeof(*answer)) {
			connection_close(connection);
			break;
		}
		if (answer->sequence == connection->sequence)
			return true;
	}
	return false;
}
